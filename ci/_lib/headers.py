"""Python.h for an interpreter that came without: out of its Debian or Ubuntu package, unpacked without root."""

from __future__ import annotations

import shutil
from pathlib import Path

from . import apt
from .interpreters import Interpreter
from .paths import CACHE
from .steps import Failure, environment, exclusive, run, step


class NoHeaders(Failure):
    """The interpreter cannot be built for; the text says what would help."""


def include_folder(interpreter: Interpreter) -> Path:
    """The folder with all of its headers: its own where they are complete, else one in the cache."""
    with exclusive("headers"):
        return _include_folder(interpreter)


def _include_folder(interpreter: Interpreter) -> Path:
    name = "python{}.{}".format(*interpreter.version)
    if interpreter.has_headers and not architecture_configs(interpreter.include.parent, name):
        return interpreter.include
    collected = CACHE / "headers" / f"{name}-{'.'.join(map(str, interpreter.version))}"
    if (collected / "Python.h").is_file():
        return collected
    if interpreter.has_headers:
        collect(interpreter.include.parent, name, collected)
        return collected
    if interpreter.executable.parent != Path("/usr/bin") or not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise NoHeaders(
            f"{interpreter}: {interpreter.include}/Python.h is missing. Install the development package of this "
            f"Python (Debian, Ubuntu: apt install {name}-dev; Fedora: dnf install python3-devel), "
            "or use a Python with headers, such as uv's or pyenv's."
        )
    with step(f"fetching the headers of {name} from its Debian package (not installed, only unpacked)"):
        unpack_debian(f"lib{name}-dev", name, collected)
    return collected


def architecture_configs(include: Path, name: str) -> list[Path]:
    """Debian's pyconfig.h of each architecture: the one beside Python.h only points to it, by a path of the system's
    compiler, which ours does not search."""
    return sorted(include.glob(f"*-linux-*/{name}/pyconfig.h"))


def collect(include: Path, name: str, destination: Path) -> None:
    """Copy the headers in `include`/`name` to `destination`, with the architecture's own pyconfig.h."""
    work = destination.with_name(f"{destination.name}.work")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(include / name, work)
    for config in architecture_configs(include, name):
        shutil.copy(config, work / "pyconfig.h")
    shutil.rmtree(destination, ignore_errors=True)
    work.rename(destination)


def unpack_debian(package: str, name: str, destination: Path) -> None:
    """Download `package` with package lists of our own, and put its headers into `destination`."""
    work = CACHE / "headers" / "apt"
    apt_get = apt.private(work)
    clean = environment(LC_ALL="C")
    try:
        run([*apt_get, "update"], log="headers-update", env=clean)
        run([*apt_get, "download", package], log="headers-download", env=clean, cwd=work)
        for archive in work.glob("*.deb"):
            run(["dpkg", "--extract", archive, work / "root"], log="headers-unpack", env=clean)
        include = work / "root" / "usr" / "include"
        if not (include / name / "Python.h").is_file():
            raise Failure(f"{package} has no usr/include/{name}/Python.h")
        collect(include, name, destination)
    except Failure as failure:
        raise NoHeaders(
            f"{failure}\nThe headers of {name} could not be had; apt install {package} (as root)"
        ) from failure
    finally:
        shutil.rmtree(work, ignore_errors=True)

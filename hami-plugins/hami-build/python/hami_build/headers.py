"""Provides Python.h for an interpreter without headers: unpacks its Debian or Ubuntu package, without root."""

from __future__ import annotations

import shutil
from pathlib import Path

from hami_build import apt, cache
from hami_build.interpreters import Interpreter
from hami_build.steps import Failure, environment, exclusive, run, step


class NoHeaders(Failure):
    """Nothing can be built for the interpreter; the text says what to install."""


def include_folder(interpreter: Interpreter) -> Path:
    """Return a folder with all headers of the interpreter: its own if it is complete, else one in the cache."""
    with exclusive("headers"):
        return _include_folder(interpreter)


def _include_folder(interpreter: Interpreter) -> Path:
    name = "python{}.{}".format(*interpreter.version)
    if interpreter.has_headers and not architecture_configs(interpreter.include.parent, name):
        return interpreter.include
    collected = cache.folder() / "headers" / f"{name}-{'.'.join(map(str, interpreter.version))}"
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
    """Return Debian's pyconfig.h of each architecture.

    The file beside Python.h only includes it, by a path that the system's compiler searches and ours does not.
    """
    return sorted(include.glob(f"*-linux-*/{name}/pyconfig.h"))


def collect(include: Path, name: str, destination: Path) -> None:
    """Copy the headers in `include`/`name` to `destination`, with the pyconfig.h of the architecture."""
    work = destination.with_name(f"{destination.name}.work")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(include / name, work)
    for config in architecture_configs(include, name):
        shutil.copy(config, work / "pyconfig.h")
    shutil.rmtree(destination, ignore_errors=True)
    work.rename(destination)


def unpack_debian(package: str, name: str, destination: Path) -> None:
    """Download `package` with separate package lists, and copy its headers into `destination`."""
    work = cache.folder() / "headers" / "apt"
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
            f"{failure}\nThe headers of {name} cannot be downloaded; as root: apt install {package}"
        ) from failure
    finally:
        shutil.rmtree(work, ignore_errors=True)

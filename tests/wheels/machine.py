"""A temporary system to install into: its own Python prefix and home folder, and only our index."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from hami_build.interpreters import Interpreter

# Scripts begin with the path of their Python, which is wrong in a copied prefix.
PIP = '#!/bin/sh\nexec "$(dirname "$0")/python3" -m pip "$@"\n'


class Machine:
    """A system that runs commands as its user would type them."""

    def __init__(self, prefix: Path, home: Path, address: str, enter: Sequence[str | Path] = ()) -> None:
        """`enter` is a command prefix that enters the system with these folders."""
        self.prefix = prefix
        self.home = home
        self._enter = enter
        self.tools: Path | None = None  # a folder with hami-tools, whose checks `hami doctor` then runs
        # Inherits no settings of pip, uv or another Python.
        self.environment = {
            "PATH": f"{prefix}/bin:/usr/bin:/bin",
            "HOME": str(home),
            "LC_ALL": "C.UTF-8",
            "PIP_COMPILE": "0",  # half of the time of an installation; Python compiles what it imports
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_DEFAULT_TIMEOUT": "180",  # seconds; the machine may be busy
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_INDEX_URL": address,
            "PIP_NO_CACHE_DIR": "1",
            "PIP_ROOT_USER_ACTION": "ignore",
            "UV_CACHE_DIR": f"{home}/.cache/uv",
            "UV_DEFAULT_INDEX": address,
            "UV_HTTP_TIMEOUT": "180",
            "UV_NO_CONFIG": "1",
            "UV_PYTHON_DOWNLOADS": "never",
        }

    def _start(self, command: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._enter, "/bin/sh", "-c", f"cd {shlex.quote(str(self.home))}; {command}"],
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def run(self, command: str, **environment: str) -> str:
        """Return the output of `command`, which must succeed."""
        done = self._start(command, environment)
        assert done.returncode == 0, f"$ {command}\n{done.stdout}"
        return done.stdout

    def fails(self, command: str, **environment: str) -> str:
        """Return the output of `command`, which must fail."""
        done = self._start(command, environment)
        assert done.returncode != 0, f"$ {command}\n{done.stdout}"
        return done.stdout

    def healthy(self, hami: str = "python3 -m hami", **environment: str) -> None:
        """Check that hami runs and `hami doctor` finds no problems."""
        assert self.run(f"{hami} run Identity --text hello", **environment) == "hello\n"
        assert self.run(f"{hami} doctor", **environment).endswith("\nno problems found\n")
        assert self.problems(hami, **environment) == []

    def problems(self, hami: str = "python3 -m hami", **environment: str) -> list[str]:
        """Return the problems that `hami doctor` finds with `tools`, except those of hami-tools with an older core."""
        if self.tools:
            environment["PYTHONPATH"] = str(self.tools)
        output = self._start(f"{hami} doctor", environment).stdout.splitlines()
        found = [line.removeprefix("problem: ") for line in output if line.startswith("problem: ")]
        return [problem for problem in found if not problem.startswith("hami-tools ")]

    def site(self, which: str) -> Path:
        """Return the site-packages of the prefix ("system") or of the home folder ("user")."""
        answer = {"system": "site.getsitepackages()[0]", "user": "site.getusersitepackages()"}[which]
        return Path(self.run(f"python3 -c 'import site; print({answer})'").strip())

    def files(self) -> set[str]:
        """Return every file of the prefix and of the home folder that belongs to an installation."""
        found = (path for root in (self.prefix, self.home) for path in root.rglob("*") if not path.is_dir())
        return {str(path) for path in found if "/.cache/" not in str(path)}


def write_prefix(folder: Path, interpreter: Interpreter) -> None:
    """Make `folder` a Python prefix like that of `interpreter`, with its pip and nothing else.

    The standard library consists of links; installations do not change the original.
    """
    name = "python{}.{}".format(*interpreter.version)
    library = folder / "lib" / name
    library.mkdir(parents=True)
    original = Path(output_of(interpreter.executable, "import os; print(os.path.dirname(os.__file__))"))
    for entry in original.iterdir():
        if entry.name not in ("site-packages", "dist-packages", "EXTERNALLY-MANAGED"):
            (library / entry.name).symlink_to(entry)
    binaries = folder / "bin"
    binaries.mkdir()
    shutil.copy2(interpreter.executable, binaries / name)  # with a link, Python would use the original prefix
    for link in ("python3", "python"):
        (binaries / link).symlink_to(name)
    site = Path(output_of(binaries / name, "import sysconfig; print(sysconfig.get_path('purelib'))"))
    copy_pip(interpreter, folder / "env", site)
    for script in ("pip", "pip3"):
        (binaries / script).write_text(PIP)
        (binaries / script).chmod(0o755)


def copy_pip(interpreter: Interpreter, work: Path, site: Path) -> None:
    """Copy the pip of an interpreter into `site`; the Python of Debian has pip only in virtual environments."""
    subprocess.run([interpreter.executable, "-m", "venv", work], env={"HOME": "/"}, check=True)
    for part in work.glob("lib/python*/site-packages/pip*"):
        shutil.copytree(part, site / part.name)
    shutil.rmtree(work)


def output_of(python: Path, code: str) -> str:
    """Return the output of `code`, run without site-packages."""
    return subprocess.run([python, "-IS", "-c", code], capture_output=True, text=True, check=True).stdout.strip()

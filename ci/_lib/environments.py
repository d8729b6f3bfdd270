"""Virtual environments in the cache, created once for each content of their requirements."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path

from hami_build.steps import Failure, exclusive, run, step

from . import preflight
from .paths import CACHE, REQUIREMENTS
from .preflight import INDEX_HINT as INDEX_HINT

STAMP = "hami-stamp"


def require_venv() -> None:
    """Fail with what to install if the interpreter has no venv module, as on Debian."""
    if sys.version_info < (3, 10):  # noqa: UP036 - older interpreters get a message
        raise Failure(f"Python {sys.version.split()[0]} is too old; this needs Python 3.10 or newer: {sys.executable}")
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        raise Failure(f"{sys.executable} has no venv module; on Debian and Ubuntu: apt install python3-venv")


def install(python: Path, log: str, *arguments: str | Path) -> None:
    try:
        run([python, "-m", "pip", "install", "--quiet", *arguments], log=log)
    except Failure as failure:
        raise Failure(f"{failure}\n{INDEX_HINT}") from failure


def fresh_venv(folder: Path, python: str) -> Path:
    """Create an empty virtual environment in `folder`, replacing its contents, and return its interpreter."""
    shutil.rmtree(folder, ignore_errors=True)
    run([python, "-m", "venv", folder], log=f"venv-{folder.name}")
    return folder / "bin" / "python"


def stamp_of(folder: Path) -> str:
    """Return the key that `folder` was finished with; empty if it is incomplete."""
    stamp = folder / STAMP
    return stamp.read_text() if stamp.is_file() else ""


def stamped(folder: Path, key: str) -> bool:
    """Return whether `folder` was finished with `key`."""
    return stamp_of(folder) == key


def made_by(folder: Path, python: str) -> bool:
    """Return whether `folder` is a finished environment of that interpreter; in it pip replaces only what changed."""
    if not stamp_of(folder):
        return False
    settings = dict(line.split(" = ", 1) for line in (folder / "pyvenv.cfg").read_text("utf-8").splitlines())
    return settings.get("executable") == python and settings["version"] == sys.version.split()[0]


def included(requirements: Path) -> list[Path]:
    """Return the file and the files in the same folder that it includes with `-r`."""
    lines = requirements.read_text("utf-8").splitlines()
    return [requirements, *(requirements.with_name(line[3:].strip()) for line in lines if line.startswith("-r "))]


def first_package(requirements: Path) -> str:
    texts = "\n".join(file.read_text("utf-8") for file in included(requirements))
    lines = (line for line in texts.splitlines() if line and not line.startswith(("#", "-r ")))
    return re.split(r"[^\w.-]", next(lines), maxsplit=1)[0]


def key_of(name: str, python: str) -> str:
    """Return what the environment for ci/requirements/NAME.txt depends on."""
    contents = b"".join(file.read_bytes() for file in included(REQUIREMENTS / f"{name}.txt"))
    return hashlib.sha256(contents + f"{python} {sys.version}".encode()).hexdigest()


def is_current(name: str, python: str) -> bool:
    """Return whether `ensure` would change nothing."""
    return stamped(CACHE / "envs" / name, key_of(name, python))


def ensure(name: str, python: str | None = None) -> Path:
    """Return the interpreter of the environment for ci/requirements/NAME.txt; create or update it first."""
    python = os.path.realpath(python or sys.executable)  # one name for an interpreter and for its environments
    folder, requirements = CACHE / "envs" / name, REQUIREMENTS / f"{name}.txt"
    key = key_of(name, python)
    with exclusive(f"env-{name}"):
        if not stamped(folder, key):
            preflight.require_index(first_package(requirements))
            with step(f"installing the {name} environment"):
                own = folder / "bin" / "python"
                if not made_by(folder, python):
                    fresh_venv(folder, python)
                (folder / STAMP).unlink(missing_ok=True)
                install(own, f"install-{name}", "-r", requirements)
            (folder / STAMP).write_text(key)
    return folder / "bin" / "python"

"""Virtual environments in the cache, made once for each content of their requirements; each command enters its own."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from hami_build.pip_settings import parse_config
from hami_build.steps import Failure, environment, exclusive, guarded, only_one_at_a_time, run, step

from .paths import CACHE, REQUIREMENTS

INDEX_HINT = "The package index must be reachable; pip's own settings (PIP_INDEX_URL, proxies) apply."
STAMP = "hami-stamp"
INSTALLERS = "installers"  # the environment with uv
# Settings of pip, each a list of values, and uv's options for them.
UV_OPTIONS = {
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "constraint": "--constraint",
    "trusted-host": "--allow-insecure-host",
}
# Megabytes on the disk that each environment needs. Measured: 600 and 1100.
MEGABYTES = {"tools": 1_000, "check": 1_500}


def base_python() -> str:
    """The interpreter that this one is, or is an environment of; one name, whichever link started it."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def enter(name: str, *, of_any_python: bool = False) -> None:
    """Restart this script in the environment `name`, made by the Python that started it; returns only there.

    Args:
        name: That of ci/requirements/NAME.txt.
        of_any_python: Take an environment that is there as it is, also one that another Python has made.
    """
    folder = CACHE / "envs" / name
    if sys.prefix == str(folder):
        return

    def make() -> int:
        require_venv()
        with only_one_at_a_time():
            if not folder.is_dir():
                require_room(CACHE, MEGABYTES[name])
            ensure(name, base_python())
        return 0

    stamp = stamp_of(folder)
    if not (of_any_python and stamp) and stamp != stamp_for(name, base_python()) and (status := guarded(make)):
        sys.exit(status)
    python = str(folder / "bin" / "python")
    sys.stdout.flush()
    os.execv(python, [python, *sys.argv])


def require_venv() -> None:
    """Fail with what to install if the interpreter has no venv module, as on Debian."""
    if sys.version_info < (3, 10):  # noqa: UP036 - older interpreters get a message
        raise Failure(f"Python {sys.version.split()[0]} is too old; this needs Python 3.10 or newer: {sys.executable}")
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        raise Failure(f"{sys.executable} has no venv module; on Debian and Ubuntu: apt install python3-venv")


def require_room(folder: Path, megabytes: int) -> None:
    """Fail if fewer than `megabytes` are free on the disk of `folder`."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(there).free // 1_000_000
    if free < megabytes:
        raise Failure(
            f"{free} MB are free in {there}, and {megabytes} MB are needed. Nothing was changed. "
            "Free some space, or set HAMI_CACHE to another folder."
        )
    if not os.access(there, os.W_OK):
        raise Failure(f"{there} is not writable. Nothing was changed. Set HAMI_CACHE to another folder.")


def included(requirements: Path) -> list[Path]:
    """Return the file and the files in the same folder that it includes with `-r`."""
    lines = requirements.read_text("utf-8").splitlines()
    return [requirements, *(requirements.with_name(line[3:].strip()) for line in lines if line.startswith("-r "))]


def stamp_for(name: str, python: str) -> str:
    """Return a hash of what an environment depends on: ci/requirements/NAME.txt and its Python."""
    contents = b"".join(file.read_bytes() for file in included(REQUIREMENTS / f"{name}.txt"))
    return hashlib.sha256(contents + f"{python} {sys.version}".encode()).hexdigest()


def stamp_of(folder: Path) -> str:
    """Return the stamp that `folder` was finished with; empty if it is incomplete."""
    stamp = folder / STAMP
    return stamp.read_text("utf-8") if stamp.is_file() else ""


def made_by(folder: Path, python: str) -> bool:
    """Return whether `folder` is a finished environment of that interpreter; in it pip replaces only what changed."""
    if not stamp_of(folder):
        return False
    settings = dict(line.split(" = ", 1) for line in (folder / "pyvenv.cfg").read_text("utf-8").splitlines())
    return settings.get("executable") == python and settings["version"] == sys.version.split()[0]


def ensure(name: str, python: str | None = None) -> Path:
    """Return the interpreter of the environment for ci/requirements/NAME.txt; create or update it first."""
    python = os.path.realpath(python or sys.executable)  # one name for an interpreter and for its environments
    folder, stamp = CACHE / "envs" / name, stamp_for(name, python)
    with exclusive(f"env-{name}"):
        if stamp_of(folder) != stamp:
            with step(f"installing the {name} environment"):
                if not made_by(folder, python):
                    fresh_venv(folder, python)
                install(folder, stamp, "-r", REQUIREMENTS / f"{name}.txt")
    return folder / "bin" / "python"


def fresh_venv(folder: Path, python: str) -> None:
    """Create an empty virtual environment in `folder`, replacing its contents."""
    shutil.rmtree(folder, ignore_errors=True)
    run([python, "-m", "venv", folder], log=f"venv-{folder.name}")


def install(folder: Path, stamp: str, *arguments: str | Path) -> None:
    """Let uv install into an environment, or pip where uv cannot; the environment has `stamp` when it is complete.

    uv needs a sixth of pip's time, and environments share the files in its cache. Neither compiles modules: Python
    compiles those that are imported.
    """
    (folder / STAMP).unlink(missing_ok=True)
    python, log = folder / "bin" / "python", f"install-{folder.name}"
    try:
        if folder.name == INSTALLERS or not by_uv(python, arguments, log):
            run([python, "-m", "pip", "install", "--quiet", "--no-compile", *arguments], log=log)
    except Failure as failure:
        raise Failure(f"{failure}\n{INDEX_HINT}") from failure
    (folder / STAMP).write_text(stamp, "utf-8")


def by_uv(python: Path, arguments: Sequence[str | Path], log: str) -> bool:
    """Let uv, with pip's settings of indexes, install into the environment of `python`; returns whether it could."""
    installers = ensure(INSTALLERS, base_python()).parent
    options, extra = uv_options(run([installers / "python", "-m", "pip", "config", "list"], log="pip-config"))
    env = environment(UV_CACHE_DIR=str(CACHE / "uv"), **extra)
    command = [installers / "uv", "pip", "install", "--quiet", "--python", python, *options, *arguments]
    try:
        run(command, log=log, env=env)
    except Failure:
        return False  # pip knows more settings, and its message is about them
    return True


def uv_options(pip_config: str) -> tuple[list[str], dict[str, str]]:
    """Return the options and variables of uv for what `pip config list` prints."""
    settings = parse_config(pip_config, "install")
    options = ["--index-strategy", "unsafe-best-match"]  # the newest version in any of the indexes, as pip
    for key, option in UV_OPTIONS.items():
        options += [part for value in settings.get(key, "").split() for part in (option, value)]
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        options.append("--no-index")
    return options, {"SSL_CERT_FILE": settings["cert"]} if "cert" in settings else {}

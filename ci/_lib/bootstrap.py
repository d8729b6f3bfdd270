"""The first lines of each command: continue inside an environment made by the Python that started it, 3.10 or newer."""

from __future__ import annotations

import os
import sys

from hami_build.steps import guarded, only_one_at_a_time

from . import environments, preflight
from .paths import CACHE

# Megabytes on the disk that each environment needs. Measured: 600 and 1100.
MEGABYTES = {"tools": 1_000, "check": 1_500}


def base_python() -> str:
    """The interpreter that this one is, or is an environment of; one name, whichever link started it."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def enter(name: str, *, of_any_python: bool = False) -> None:
    """Restart this script under the interpreter of the environment `name`; returns only there.

    Args:
        name: That of ci/requirements/NAME.txt.
        of_any_python: Take an environment that is there as it is, also one that another Python has made.
    """
    folder = CACHE / "envs" / name
    if sys.prefix == str(folder):
        return

    def make() -> int:
        environments.require_venv()
        with only_one_at_a_time():
            if not folder.is_dir():
                preflight.require_room(CACHE, MEGABYTES[name])
            environments.ensure(name, base_python())
        return 0

    if not (of_any_python and environments.stamp_of(folder)) and not environments.is_current(name, base_python()):
        status = guarded(make)
        if status:
            sys.exit(status)
    python = str(folder / "bin" / "python")
    sys.stdout.flush()
    os.execv(python, [python, *sys.argv])


def enter_tools() -> None:
    """Enter the environment of the tools that build wheels."""
    enter("tools")

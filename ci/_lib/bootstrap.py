"""The first lines of each command: go on inside the tools' environment, made by whatever Python ≥ 3.10 started it."""

from __future__ import annotations

import os
import sys

from . import environments, preflight
from .paths import CACHE
from .steps import guarded, only_one_at_a_time

TOOLS_MEGABYTES = 1_000  # measured: 600


def base_python() -> str:
    """The interpreter that this one is, or is an environment of; by one name, whichever link it was started by."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def enter_tools() -> None:
    """Restart this script under the tools' interpreter; returns only there."""
    if sys.prefix == str(CACHE / "envs" / "tools"):
        return

    def make() -> int:
        environments.require_venv()
        with only_one_at_a_time():
            if not (CACHE / "envs" / "tools").is_dir():
                preflight.require_room(CACHE, TOOLS_MEGABYTES)
            environments.ensure("tools", base_python())
        return 0

    status = guarded(make)
    if status:
        sys.exit(status)
    python = str(CACHE / "envs" / "tools" / "bin" / "python")
    sys.stdout.flush()
    os.execv(python, [python, *sys.argv])

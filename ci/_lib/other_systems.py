"""The CPythons of this machine that go into an image of another system."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hami_build.interpreters import Interpreter

PYTHON = "3.11"  # of Debian 12: what tests of other systems run


def prefix(interpreter: Interpreter) -> Path:
    return interpreter.executable.parents[1]


def can_carry(interpreter: Interpreter) -> bool:
    """Return whether the interpreter has its own folder that can be copied; the system's Python does not."""
    return prefix(interpreter) not in (Path("/usr"), Path("/usr/local"))


def newest_two(found: Sequence[Interpreter]) -> list[Interpreter]:
    """Return the interpreters for an image by default: the newest two that can be copied."""
    return list(filter(can_carry, found))[-2:]

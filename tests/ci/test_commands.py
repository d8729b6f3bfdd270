"""What the commands say to arguments that make no sense: one line with what was given and what would be right.

ci/test, which runs this, has the lock of the checkout: only what is said before it can be tested.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from _lib.paths import ROOT


def told(*command: str) -> str:
    """What `command` says, which must fail without a traceback."""
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode not in (0, -1)
    assert "Traceback" not in done.stderr
    return done.stderr.strip()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("ci/wheels --python /bin/true", "no CPython to build for (/bin/true):\n/bin/true: does not run"),
        ("ci/audit /nowhere/x-1-py3-none-any.whl", '"/nowhere/x-1-py3-none-any.whl" is no file'),
        ("ci/cibuildwheel-local /nowhere", '"/nowhere" has no pyproject.toml'),
        ("ci/index --files /nowhere", "there are no wheels in /nowhere; build them: ci/wheels"),
    ],
)
def test_what_cannot_be_done_is_told(command: str, said: str) -> None:
    assert told(*command.split()) == said


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("ci/wheels --python 2.9", "no CPython to build for (2.9):\n2.9: no such CPython found; there are cp3"),
        ("ci/wheels --platform sparc", "argument --platform: invalid choice: 'sparc' (choose from "),
        ("ci/test nonsense", 'error: there is no tier "nonsense"; the tiers are lint, types, '),
        ("ci/wheels --plugin hami-nonsense", 'there is no plugin "hami-nonsense"; hami-plugins/ has hami-image, '),
    ],
)
def test_what_is_not_there_is_told_with_what_is(command: str, said: str) -> None:
    assert said in told(*command.split())

"""The commands report invalid arguments in one line: the given value, and what is expected.

ci/test, which runs this, holds the lock of the checkout: only messages before the lock can be tested.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from _lib.paths import ROOT


def error_of(*command: str) -> str:
    """Return the error output of `command`, which must fail without a traceback."""
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode not in (0, -1)
    assert "Traceback" not in done.stderr
    return done.stderr.strip()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("ci/wheels --python /bin/true", "no CPython to build for (/bin/true):\n/bin/true: does not run"),
        ("ci/audit /nowhere/x-1-py3-none-any.whl", '"/nowhere/x-1-py3-none-any.whl" is not a file'),
        ("ci/index --files /nowhere", "/nowhere contains no wheels; build them: ci/wheels"),
    ],
)
def test_impossible_requests_are_reported(command: str, said: str) -> None:
    assert error_of(*command.split()) == said


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("ci/wheels --python 2.9", "no CPython to build for (2.9):\n2.9: no such CPython found; found: cp3"),
        ("ci/wheels --platform sparc", "argument --platform: invalid choice: 'sparc' (choose from "),
        ("ci/test nonsense", 'error: unknown tier "nonsense"; the tiers are plugins, plugins-asan, '),
        (
            "ci/wheels --plugin hami-nonsense",
            'unknown plugin "hami-nonsense"; hami-plugins/ contains hami-accel, hami-',
        ),
    ],
)
def test_unknown_names_are_reported_with_the_known_ones(command: str, said: str) -> None:
    assert said in error_of(*command.split())

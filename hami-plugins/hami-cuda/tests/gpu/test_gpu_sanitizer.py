"""compute-sanitizer finds no error in the kernels and on the way of a batch through CUDA graphs."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PLACES = ("compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer")
SAYS = {"every_kernel.py": "every kernel ran", "graph_path.py": "the graph path ran"}
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")


def run(program: str, *before: str) -> str:
    pytest.importorskip("numpy", reason="numpy is not installed")
    command = [*before, sys.executable, str(Path(__file__).with_name(program))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("program", "tool"), [*itertools.product(SAYS, TOOLS)])
def test_compute_sanitizer_finds_nothing(program, tool):
    sanitizer = next(filter(None, map(shutil.which, PLACES)), None)
    if sanitizer is None:
        pytest.skip("compute-sanitizer of the CUDA toolkit is not installed")
    assert SAYS[program] in run(program, sanitizer, "--tool", tool, "--error-exitcode", "9")


@pytest.mark.parametrize("program", SAYS)
def test_the_programs_run(program):
    """They are for compute-sanitizer, and must not fail by themselves."""
    assert SAYS[program] in run(program)

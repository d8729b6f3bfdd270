"""compute-sanitizer finds no error in the kernels: memory, and races between the threads of a block."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("every_kernel.py")
PLACES = ("compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer")


@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck"])
def test_the_kernels_are_clean(tool):
    pytest.importorskip("numpy", reason="numpy is not installed")
    sanitizer = next(filter(None, map(shutil.which, PLACES)), None)
    if sanitizer is None:
        pytest.skip("compute-sanitizer of the CUDA toolkit is not installed")
    command = [sanitizer, "--tool", tool, "--error-exitcode", "9", sys.executable, str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every kernel ran" in done.stdout


def test_the_program_runs_every_kernel():
    """The program is for compute-sanitizer, and must not fail by itself."""
    pytest.importorskip("numpy", reason="numpy is not installed")
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

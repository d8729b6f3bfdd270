"""Ranges of NVTX: a profiler sees each batch of each backend, and a process without one does not load NVTX."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from native import compiled

pytest.importorskip("numpy", reason="numpy is not installed")

PROGRAM = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
from native import fake_driver
driver = fake_driver()
import hami
import numpy as np
if len(sys.argv) > 2:
    ctypes.CDLL(sys.argv[2])
with hami.pipe({"copy": {"backend": "S[GpuTensor,SyncTensor]"}}) as pipe:
    pipe({"data": np.zeros(3)})
with open("/proc/self/maps") as maps:
    print("nvtx" in maps.read())
"""


def run(*arguments: str, **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "NVTX_INJECTION64_PATH"}
    command = [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), *arguments]
    done = subprocess.run(command, env=environment | variables, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_profiler_gets_a_range_for_each_backend_and_node(tmp_path):
    library = compiled("fake_nvtx.cpp", tmp_path, "libnvtx3interop.so.1")
    log = tmp_path / "ranges"
    run(str(library), NVTX_INJECTION64_PATH="a profiler", FAKE_NVTX=str(log))
    assert log.read_text().splitlines() == ["copy: GpuTensor", "end", "copy: SyncTensor", "end"]


def test_without_a_profiler_nothing_is_loaded():
    assert run() == "False"

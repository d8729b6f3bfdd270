"""Which inputs are copied, measured by the peak memory of a process."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import save
from onnx import TensorProto, helper

ROWS, COLUMNS = 16, 2**20  # 64 MiB of float32
PROGRAM = """
import sys
import hami
import numpy as np

def peak():  # of this program; ru_maxrss can be that of the process that started it
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])

rows, columns, path, offset = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
memory = np.ones(rows * columns + offset, np.float32)
data = memory.view(np.uint8)[offset : offset + 4 * rows * columns].view(np.float32).reshape(rows, columns)
with hami.pipe({"backend": "OpenvinoTensor", "model": path, "batched": True}) as pipe:  # without a test of its rows
    hami.to_numpy(pipe({"data": np.ones((1, columns), np.float32)})["result"])
    before = peak()
    result = hami.to_numpy(pipe({"data": data, "request_size": rows})["result"])
    assert result.shape == (rows, 1)
    print(peak() - before)
"""


@pytest.fixture
def first_column(tmp_path):
    """y = column 0 of x, as float32"""
    node = helper.make_node("Slice", ["x", "from", "to", "axis"], ["y"])
    ports = {"x": (TensorProto.FLOAT, ["n", COLUMNS])}, {"y": (TensorProto.FLOAT, ["n", 1])}
    return save(tmp_path / "first.onnx", [node], *ports, {"from": [0], "to": [1], "axis": [1]})


def memory_growth(path, *, aligned: bool) -> int:
    """Return how much one request raises the peak memory of a process, in bytes."""
    arguments = [str(ROWS), str(COLUMNS), str(path), str(int(not aligned))]
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return 1024 * int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_aligned_memory_is_not_copied(first_column):
    size = 4 * ROWS * COLUMNS
    assert memory_growth(first_column, aligned=True) < size / 2
    assert memory_growth(first_column, aligned=False) > size / 2

"""What is copied and what is not, seen by the most memory that a process has held."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import save
from onnx import TensorProto, helper

ROWS, COLUMNS = 16, 2**20  # of float32: 64 MiB
PROGRAM = """
import resource, sys
import hami
import numpy as np

rows, columns, path, odd = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
memory = np.ones(rows * columns + odd, np.float32)
data = memory.view(np.uint8)[odd : odd + 4 * rows * columns].view(np.float32).reshape(rows, columns)
with hami.pipe({"backend": "OpenvinoTensor", "model": path}) as pipe:
    hami.to_numpy(pipe({"data": np.ones((1, columns), np.float32)})["result"])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = hami.to_numpy(pipe({"data": data, "request_size": rows})["result"])
    assert result.shape == (rows, 1)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.fixture
def first_column(tmp_path):
    """y = column 0 of x, as float32"""
    node = helper.make_node("Slice", ["x", "from", "to", "axis"], ["y"])
    ports = {"x": (TensorProto.FLOAT, ["n", COLUMNS])}, {"y": (TensorProto.FLOAT, ["n", 1])}
    return save(tmp_path / "first.onnx", [node], *ports, {"from": [0], "to": [1], "axis": [1]})


def grown(path, *, odd: bool) -> int:
    """By how much one request makes the process larger at most, in bytes."""
    arguments = [str(ROWS), str(COLUMNS), str(path), str(int(odd))]
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return 1024 * int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_aligned_memory_is_read_where_it_lies(first_column):
    size = 4 * ROWS * COLUMNS
    assert grown(first_column, odd=False) < size / 2
    assert grown(first_column, odd=True) > size / 2

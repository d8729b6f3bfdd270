"""Device memory that this process has freed is there for other processes."""

from __future__ import annotations

import subprocess
import sys

import hami
import pytest

np = pytest.importorskip("numpy", reason="numpy is not installed")
torch = pytest.importorskip("torch", reason="torch, which tells the free memory, is not installed")

OTHER_PROCESS = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
"""


def free_share() -> float:
    free, total = torch.cuda.mem_get_info()
    return float(free / total)


def fill(pipe: hami.Pipe, share: float) -> None:
    """Make the pipe use about this share of the device for one batch."""
    side = 8000
    count = int(torch.cuda.mem_get_info()[1] * share / (3 * side * side))
    pipe({"data": np.zeros((count, 3, 8, 8), np.uint8)})


def test_another_process_starts_after_a_batch_that_filled_the_device():
    torch.cuda.empty_cache()
    with hami.pipe("S[GpuTensor,ResizeTensor(width=8000,height=8000),SyncTensor]") as pipe:
        before = free_share()
        fill(pipe, before * 0.9)
        with pytest.raises(MemoryError):
            fill(pipe, 1.5)
        assert free_share() > before - 0.14  # an eighth, and what the contexts of libraries take
        done = subprocess.run([sys.executable, "-c", OTHER_PROCESS], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        pipe({"data": np.zeros((1, 3, 8, 8), np.uint8)})

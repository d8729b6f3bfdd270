"""Device memory that is freed stays with the process up to an eighth of the device; the rest goes back."""

from __future__ import annotations

import pytest
from test_failures import run

pytest.importorskip("numpy", reason="numpy is not installed")

PROGRAM = """
fake.fake_reserved.restype = ctypes.c_size_t
MiB = 1 << 20

def reserved():
    return round(fake.fake_reserved() / MiB)

with hami.pipe("S[GpuTensor,SyncTensor]") as pipe:
    for _ in range(3):
        small = pipe({"data": np.zeros(5 * MiB, np.uint8)})["result"]
        del small
    print(reserved())  # is kept for the next batch
    big = pipe({"data": np.zeros(40 * MiB, np.uint8)})["result"]
    print(reserved())
    del big
    print(reserved())
    pipe({"data": np.zeros(MiB, np.uint8)})
    print(reserved())
"""


@pytest.mark.parametrize("pools", ["0", "1"])
def test_freed_memory_beyond_an_eighth_of_the_device_goes_back(fake, pools):
    text = run(fake, PROGRAM, FAKE_CUDA_MEMORY=str(64 << 20), FAKE_CUDA_POOLS=pools)
    after_small, with_big, after_big, later = map(int, text.split())
    assert 5 <= after_small <= 8
    assert with_big >= 40
    assert after_big <= 8
    assert later <= 8


def test_a_lower_limit_lowers_the_share(fake):
    text = run(fake, PROGRAM.replace("40 *", "3 *"), FAKE_CUDA_MEMORY=str(640 << 20), HAMI_CUDA_MEMORY_LIMIT="6MiB")
    assert max(map(int, text.split())) <= 8


def test_a_failed_allocation_leaves_nothing_behind(fake):
    program = """
fake.fake_reserved.restype = ctypes.c_size_t
with hami.pipe("S[GpuTensor,ResizeTensor(width=4000,height=4000),SyncTensor]") as pipe:
    pipe({"data": image})
    try:
        pipe({"data": image.repeat(3, 0)})
    except MemoryError:
        print(fake.fake_reserved())
"""
    text = run(fake, program, FAKE_CUDA_MEMORY=str(100 << 20))
    assert int(text) <= 100 << 17

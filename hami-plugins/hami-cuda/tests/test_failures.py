"""What ends a process with CUDA, or follows it: failed kernels, a fork, and an exit with work in flight.

Each program runs in a process of its own, on the fake driver.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("numpy", reason="numpy is not installed")

START = """
import ctypes, os, sys
import hami, numpy as np
fake = ctypes.CDLL(sys.argv[1])
image = np.full((1, 3, 20, 30), 7, np.uint8)
CHAIN = "S[GpuTensor,ResizeTensor(width=9,height=7),SyncTensor]"
"""


def run(fake: Any, program: str, *arguments: str, **environment: str) -> str:
    """Run a program and return what it prints; it must exit without an error."""
    command = [sys.executable, "-W", "ignore", "-c", START + program, fake._name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr
    return done.stdout


def test_after_a_failed_kernel_each_request_says_that_the_process_must_restart(fake):
    text = run(
        fake,
        """
with hami.pipe(CHAIN) as pipe, hami.pipe("hami-cuda::CpuTensor") as other:
    result = pipe({"data": image})["result"]
    os.environ["FAKE_CUDA_LAUNCH"] = "700"
    for call, data in (pipe, image), (pipe, image), (other, result):
        try:
            call({"data": data})
        except hami.Error as error:
            print(str(error).split("\\n")[0])
    del result
""",
    )
    sentence = (
        "cannot launch a kernel: CUDA_ERROR_UNKNOWN: unknown error; CUDA does not work any more in this process: "
        "restart it"
    )
    names = ("ResizeTensor", "GpuTensor", "CpuTensor")
    assert text.splitlines() == [f"{name}: {sentence}" for name in names]


def test_a_failed_kernel_returns_the_memory_of_its_batch(fake):
    text = run(
        fake,
        """
with hami.pipe(CHAIN) as pipe:
    os.environ["FAKE_CUDA_LAUNCH"] = "700"
    try:
        pipe({"data": image})
    except hami.Error:
        pass
print(fake.fake_allocations())
""",
    )
    assert text == "0\n"


def test_a_forked_process_gets_an_error_instead_of_a_crash(fake):
    text = run(
        fake,
        """
hami.pipe(CHAIN).close()
child = os.fork()
if child == 0:
    try:
        hami.pipe(CHAIN)
    except hami.Error as error:
        print(str(error).split("\\n")[0], flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
""",
    )
    assert "CUDA does not work in a process that was forked after CUDA was in use" in text


@pytest.mark.parametrize("ending", ["", "sys.exit(0)", "pipe.close()", "del pipe"])
def test_a_process_exits_with_work_in_flight(fake, ending):
    """Every event says that its work is not done, so inputs and results are held until the end."""
    run(
        fake,
        f"""
os.environ["FAKE_CUDA_BUSY"] = "1"
pipe = hami.pipe("S[GpuTensor,ResizeTensor(width=9,height=7),StreamGuard]")
results = [pipe({{"data": image}})["result"] for _ in range(5)]
assert results[0].device == "cuda:0"
{ending}
""",
    )


def test_a_device_without_memory_pools_gives_the_same_results(fake):
    text = run(
        fake,
        """
os.environ["FAKE_CUDA_POOLS"] = "0"
with hami.pipe({"backend": CHAIN, "instance_num": 2, "max": 4}) as pipe, hami.pipe("hami-cuda::CpuTensor") as back:
    requests = pipe([{"data": image} for _ in range(50)])
    assert all((hami.to_numpy(back({"data": each["result"]})["result"]) == 7).all() for each in requests)
    del requests
print(fake.fake_allocations() > 0)
""",
    )
    assert text == "True\n"  # the blocks are kept


def test_beyond_the_limit_the_batch_fails_and_the_pipe_lives(fake):
    text = run(
        fake,
        """
os.environ["HAMI_CUDA_MEMORY_LIMIT"] = "64KiB"
with hami.pipe(CHAIN) as pipe:
    for size in (20, 200, 20):
        try:
            print(pipe({"data": np.zeros((1, 3, size, size), np.uint8)})["result"].shape)
        except MemoryError as error:
            print(str(error).split("\\n")[0])

""",
    )
    shape, error, again = text.splitlines()
    assert shape == again == "(1, 3, 7, 9)"
    assert error == (
        "GpuTensor: cannot allocate 120064 bytes on the device: 0 of 65536 bytes are in use, the limit that "
        "HAMI_CUDA_MEMORY_LIMIT sets; the batch failed and its memory was freed. Lower `max` or `instance_num`, or use "
        "a smaller dtype"
    )

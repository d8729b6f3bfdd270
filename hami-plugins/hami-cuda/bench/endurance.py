"""Memory that a million images, and 200 cycles of building, using and closing a pipe, leave behind.

HAMI_BENCH_LIMIT is the limit in seconds for each part. The result says how much was done by then.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import hami
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from preprocessing import chain, jpeg_files, log, result

IMAGES = int(os.environ.get("HAMI_BENCH_IMAGES", "1000000"))
CYCLES = int(os.environ.get("HAMI_BENCH_CYCLES", "200"))
LIMIT = float(os.environ.get("HAMI_BENCH_LIMIT", "60"))
CALLERS = 8
BATCH = 64  # images that a caller sends at once
MEGABYTE = 1e6
STEP = 32 * 2**20 / MEGABYTE  # by which the pool of the driver grows
RESERVED, MOST_USED = 5, 8  # CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT and _USED_MEM_HIGH
driver = ctypes.CDLL("libcuda.so.1")


def on_device() -> float:
    """Return the device memory in use, in MB."""
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return (total - free) / MEGABYTE


def of_pool(attribute: int) -> float:
    """Return an attribute of the driver's pool, from which hami-cuda has its memory, in MB."""
    pool, size = ctypes.c_void_p(), ctypes.c_uint64()
    assert driver.cuDeviceGetDefaultMemPool(ctypes.byref(pool), 0) == 0
    assert driver.cuMemPoolGetAttribute(pool, attribute, ctypes.byref(size)) == 0
    return size.value / MEGABYTE


def on_host() -> float:
    """Return the resident memory of this process, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MEGABYTE


def run_images(pipe: hami.Pipe, files: list[bytes], images: int, until: float) -> int:
    """Return how many images were processed: `images`, or fewer at the moment `until`."""
    done = [0] * CALLERS

    def call(number: int) -> None:
        while done[number] < images // CALLERS and time.monotonic() < until:
            pipe([{"data": files[(number + i) % len(files)]} for i in range(BATCH)])
            done[number] += BATCH

    threads = [threading.Thread(target=call, args=(number,)) for number in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done)


def measure_images(files: list[bytes]) -> None:
    end = time.monotonic() + LIMIT
    with hami.pipe(chain("hami-cuda", max=BATCH)) as pipe:
        done = run_images(pipe, files, IMAGES // 20, end)  # memory of pools, which is kept
        before, host_before, pool_before = on_device(), on_host(), of_pool(RESERVED)
        history, reserved, used = [], [round(pool_before, 1)], [round(of_pool(MOST_USED), 1)]
        while done < IMAGES and time.monotonic() < end:
            done += run_images(pipe, files, min(IMAGES // 10, IMAGES - done), end)
            history.append(round(on_device(), 1))
            reserved.append(round(of_pool(RESERVED), 1))
            used.append(round(of_pool(MOST_USED), 1))
            log(f"after {done} images: {history[-1]} MB on the device, {on_host():.1f} MB on the host")
        details: dict[str, Any] = {"MB_in_use": [round(before, 1), *history], "MB_reserved_by_the_pool": reserved}
        grown = of_pool(RESERVED) - pool_before
        metric = f"Device memory in MB by which {done} images grow the use, without the pool of the driver"
        result(metric, on_device() - before - grown, at_most=8, **details)
        metric = f"Device memory in MB by which {done} images grow the pool, whose steps are {STEP:.1f} MB"
        result(metric, grown, at_most=round(STEP + 0.1, 1), MB_most_in_use_at_a_time=used)
        result(f"Host memory in MB by which {done} images grow the use", on_host() - host_before, at_most=64)


def cycle(files: list[bytes]) -> None:
    with hami.pipe(chain("hami-cuda")) as pipe:
        pipe([{"data": file} for file in files[:16]])


def measure_cycles(files: list[bytes]) -> None:
    end = time.monotonic() + LIMIT
    for _ in range(5):
        cycle(files)
    before, done = on_device(), 0
    while done < CYCLES and time.monotonic() < end:
        cycle(files)
        done += 1
    grown = on_device() - before
    result(f"Device memory in MB that {done} cycles of build, run and close leave behind", grown, at_most=16)


def main() -> None:
    files = jpeg_files()
    measure_images(files)
    measure_cycles(files)


if __name__ == "__main__":
    main()

"""Measures an `AllRounder` whose models change: calls during replacements, and memory over load and unload cycles.

    python tests/bench/serve_swaps.py [--swaps 100] [--callers 32] [--cycles 1000]

The model is a backend in Python that returns its input.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from pathlib import Path

import hami
from hami_serve import AllRounder


@hami.register
class Echo(hami.Backend):
    number: int = 0

    def forward(self, batch):
        for item in batch:
            item["result"] = item["data"]


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def calls(rounder: AllRounder, callers: int, work) -> tuple[list[float], list[BaseException]]:
    """Call the model from many threads while `work` runs; return the sorted latencies in ms, and the errors."""
    ended = threading.Event()
    latencies: list[float] = []
    errors: list[BaseException] = []

    def call() -> None:
        while not ended.is_set():
            before = time.perf_counter()
            try:
                assert rounder["echo"]({"data": 7})["result"] == 7
            except BaseException as error:
                errors.append(error)
                return
            latencies.append(1000 * (time.perf_counter() - before))

    threads = [threading.Thread(target=call) for _ in range(callers)]
    for thread in threads:
        thread.start()
    work()
    ended.set()
    for thread in threads:
        thread.join()
    return sorted(latencies), errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--swaps", type=int, default=100)
    parser.add_argument("--callers", type=int, default=32)
    parser.add_argument("--cycles", type=int, default=1000)
    given = parser.parse_args()
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    with AllRounder({"echo": {"backend": "Echo"}}) as rounder:

        def swap() -> None:
            for number in range(given.swaps):
                rounder.submit("echo", {"backend": "Echo", "number": number})

        started = time.perf_counter()
        during, lost = calls(rounder, given.callers, swap)
        seconds = time.perf_counter() - started
        steady, also_lost = calls(rounder, given.callers, lambda: time.sleep(seconds))
    for name, latencies in (("during the swaps", during), ("steady", steady)):
        p50, p99 = (latencies[int(share * (len(latencies) - 1))] for share in (0.5, 0.99))
        print(f"{name}: {len(latencies)} calls in {seconds:.1f} s, p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    print(f"{given.swaps} swaps, {given.callers} callers: {len(lost) + len(also_lost)} calls failed")
    with AllRounder({"echo": {"backend": "Echo"}}) as rounder:
        for cycle in range(given.cycles + 1):
            if cycle == given.cycles // 10:
                before = resident_mb()
            rounder.submit("other", {"backend": "Echo"})
            rounder.remove("other")
        grown = resident_mb() - before
        print(f"{given.cycles} cycles: {grown:+.1f} MB after the first tenth; models: {rounder.components()}")


if __name__ == "__main__":
    main()

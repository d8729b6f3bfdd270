"""Compares Process with a backend on a thread and with concurrent.futures.ProcessPoolExecutor.

Usage: python compare.py [ROUNDS]. The three run in turn in every round, so that other load on the machine meets all of
them; the figures are medians over the rounds.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))

import bench_backends
import hami
import numpy as np

KILO, MEGA = 1 << 10, 1 << 20
CASES = {  # the data, the function, and the calls in a round
    "1 kB there": (b"x" * KILO, "nothing", 400),
    "1 MB array there and back": (np.ones(MEGA // 8), "same", 40),
    "10 MB array there": (np.ones(10 * MEGA // 8), "nothing", 10),
}
SPINS = (30_000, 300_000)  # rounds of a loop in Python, about 1 and 10 ms


def seconds_of_one(call: Callable[[], object], calls: int) -> float:
    times = []
    for _ in range(calls):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return median(times)


def main(rounds: int) -> None:
    context = multiprocessing.get_context("spawn")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start, {rounds} rounds")
    for case, (data, name, calls) in CASES.items():
        backend = name.title()
        with (
            hami.pipe(backend) as thread,
            hami.pipe(f"Process[{backend}]") as process,
            ProcessPoolExecutor(1, context) as pool,
        ):
            function = getattr(bench_backends, name)
            ways = {
                "thread": lambda pipe=thread, data=data: pipe({"data": data}),
                "Process": lambda pipe=process, data=data: pipe({"data": data}),
                "pool": lambda pool=pool, function=function, data=data: pool.submit(function, data).result(),
            }
            found: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(rounds + 1):
                for way, call in ways.items():
                    found[way].append(seconds_of_one(call, calls))
        times = {way: median(each[1:]) for way, each in found.items()}  # the first round warms up
        added = times["Process"] - times["thread"]
        ratio = median(pool / process for pool, process in zip(found["pool"][1:], found["Process"][1:], strict=True))
        shown = ", ".join(f"{way} {seconds * 1e6:,.0f} µs" for way, seconds in times.items())
        print(f"{case}: {shown}; Process adds {added * 1e6:,.0f} µs; {ratio:.1f} times as fast as the pool")
        if name == "nothing":
            print(f"    {len(data) * getattr(data, 'itemsize', 1) / added / 1e9:.2f} GB/s into the child")
    with (
        hami.pipe("Spin") as thread,
        hami.pipe({"backend": "Process[Spin]", "instance_num": 2}) as processes,
    ):
        for spin in SPINS:
            ratios, each = [], 0.0
            for _ in range(rounds):
                times = {}
                for name, pipe in (("thread", thread), ("processes", processes)):
                    begun = time.perf_counter()
                    for _ in pipe.map(({"data": spin} for _ in range(100)), concurrency=8):
                        pass
                    times[name] = time.perf_counter() - begun
                ratios.append(times["thread"] / times["processes"])
                each = times["thread"] / 100
            print(f"Python loop of {each * 1e3:.1f} ms, 2 processes / 1 thread: {median(ratios):.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)

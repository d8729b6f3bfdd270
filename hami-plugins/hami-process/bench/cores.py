"""Measures how the rate of a loop in Python grows with the number of child processes.

Usage: python cores.py [ROUNDS] [CORES]. One thread, every number of processes and ProcessPoolExecutor run in turn in
every round; the figures are medians over the rounds of the ratio to the thread of the same round.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))

import bench_backends
import hami

SPINS = {"10 ms": 300_000, "100 ms": 3_000_000}  # rounds of a loop in Python, and about how long it takes
ROUND_S = 2.0  # of one way, as the thread's time of a loop predicts it

Way = Callable[[int, int], Iterable[object]]  # takes the rounds of a loop, and how many loops


def rate(way: Way, spin: int, loops: int) -> float:
    """Return the loops per second of wall time."""
    begun = time.perf_counter()
    for _ in way(spin, loops):
        pass
    return loops / (time.perf_counter() - begun)


def of_pipe(pipe: hami.Pipe, processes: int) -> Way:
    return lambda spin, loops: pipe.map(({"data": spin} for _ in range(loops)), concurrency=3 * processes)


def main(rounds: int, cores: int) -> None:
    print(
        f"{cores} cores, load {os.getloadavg()[0]:.1f} at the start, {rounds} rounds, Python {sys.version.split()[0]}"
    )
    counts = [count for count in (1, 2, 4, 8, 16, 32, 64) if count < cores] + [cores]
    with contextlib.ExitStack() as leaving:
        thread = of_pipe(leaving.enter_context(hami.pipe("Spin")), 1)
        ways = {"pool": (cores, _of_pool(leaving, cores))}
        for count in counts:
            pipe = leaving.enter_context(hami.pipe({"backend": "Process[Spin]", "instance_num": count}))
            ways[f"{count} processes"] = (count, of_pipe(pipe, count))
        for name, spin in SPINS.items():
            alone = rate(thread, spin, 5)
            found: dict[str, list[float]] = {way: [] for way in ways}
            for each_round in range(rounds + 1):
                single = rate(thread, spin, max(3, int(alone * ROUND_S)))
                for way, (count, run) in ways.items():
                    ratio = rate(run, spin, max(4 * count, int(alone * ROUND_S * count))) / single
                    if each_round:  # the first one warms up
                        found[way].append(ratio)
            print(f"a loop of about {name}, {1e3 / alone:.1f} ms on a thread:")
            for way, ratios in found.items():
                print(f"  {way} / 1 thread: {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)


def _of_pool(leaving: contextlib.ExitStack, cores: int) -> Way:
    pool = leaving.enter_context(ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")))
    return lambda spin, loops: pool.map(bench_backends.spin, [spin] * loops)


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[1:]]
    main(*numbers, *(5, len(os.sched_getaffinity(0)))[len(numbers) :])

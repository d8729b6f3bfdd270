"""Closed loops: each caller sends its next request as soon as the last one completes."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

WARM = 0.5  # seconds of warm-up, in which adaptive batching finds its size
LEARNS = 4.0  # the same for a node that also finds its number of instances


def by_threads(
    call: Callable[[Any], Any], payloads: list[Any], callers: int, seconds: float, warm: float = WARM
) -> dict[str, float]:
    """Each caller is a thread."""
    times: list[list[int]] = [[] for _ in range(callers)]
    start, stop = threading.Event(), threading.Event()
    clock = time.perf_counter_ns

    def run(mine: list[int], turn: int) -> None:
        start.wait()
        while not stop.is_set():
            before = clock()
            call(payloads[turn % len(payloads)])
            mine.append(clock() - before)
            turn += 1

    threads = [threading.Thread(target=run, args=(times[i], i), daemon=True) for i in range(callers)]
    for thread in threads:
        thread.start()
    start.set()
    time.sleep(warm)
    measured = Measured(times)
    time.sleep(seconds)
    figures = measured.end()
    stop.set()
    for thread in threads:
        thread.join(10)
    return figures


AsyncCall = Callable[[Any], Awaitable[Any]]


def by_tasks(call: AsyncCall, payloads: list[Any], callers: int, seconds: float) -> dict[str, float]:
    """Each caller is a task of one event loop and checks the time: a call that completes at once never yields."""
    clock = time.perf_counter_ns

    async def run(mine: list[int], turn: int, end: int) -> None:
        while (before := clock()) < end:
            await call(payloads[turn % len(payloads)])
            mine.append(clock() - before)
            turn += 1

    async def main(seconds: float) -> dict[str, float]:
        times: list[list[int]] = [[] for _ in range(callers)]
        measured = Measured(times)
        end = clock() + int(seconds * 1e9)
        await asyncio.gather(*(run(mine, turn, end) for turn, mine in enumerate(times)))
        return measured.end()

    async def warm_and_measured() -> dict[str, float]:
        await main(WARM)
        return await main(seconds)

    return asyncio.run(warm_and_measured())


class Measured:
    """From construction until `end`: calls, their times, CPU time, and the CPU time of other programs."""

    def __init__(self, times: list[list[int]]) -> None:
        self._times = times
        self._first = [len(mine) for mine in times]
        self._machine = machine_seconds()
        self._cpu, self._clock = time.process_time(), time.perf_counter()

    def end(self) -> dict[str, float]:
        seconds, cpu = time.perf_counter() - self._clock, time.process_time() - self._cpu
        others = machine_seconds() - self._machine - cpu
        every = sorted(ns for mine, first in zip(self._times, self._first, strict=True) for ns in mine[first:])
        count = max(1, len(every))
        return {
            "calls": len(every),
            "calls_per_s": len(every) / seconds,
            "p50_us": at(every, 0.5),
            "p99_us": at(every, 0.99),
            "cpu_us": cpu / count * 1e6,
            "rss_mb": rss_mb(),
            "others_cores": max(0.0, others / seconds),
        }


def at(ordered: list[int], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1e3 if ordered else float("nan")


def machine_seconds() -> float:
    """CPU time of all programs since the machine started."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK")


def rss_mb() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def threads_now() -> int:
    return len(os.listdir("/proc/self/task"))

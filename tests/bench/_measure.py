"""Shared by the benchmarks: contenders measured alternately, medians and p99, ratios within each round."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable

Call = Callable[[], object]


def about_this_machine() -> str:
    """Describe the processor, the kernel and the Python that the figures depend on."""
    model = "unknown processor"
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    cores = len(os.sched_getaffinity(0))
    return (
        f"{cores} core{'s' if cores != 1 else ''}, {model}; Linux {platform.release().split('-')[0]}; "
        f"{platform.python_implementation()} {platform.python_version()}"
    )


def about_hami() -> str:
    import hami

    return f"hami-core {hami.__version__}"


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def alternate(contenders: dict[str, Call], rounds: int, calls: int) -> dict[str, list[list[float]]]:
    """Time each call separately, in microseconds. In each round, one contender after the other makes `calls` calls."""
    for call in contenders.values():
        for _ in range(calls // 10 + 1):
            call()
    timed: dict[str, list[list[float]]] = {name: [] for name in contenders}
    clock = time.perf_counter_ns
    for _ in range(rounds):
        for name, call in contenders.items():
            times = []
            for _ in range(calls):
                start = clock()
                call()
                times.append((clock() - start) / 1e3)
            timed[name].append(times)
    return timed


def show(timed: dict[str, list[list[float]]], reference: str, unit: str = "µs") -> None:
    """Print the median and p99 of all calls, and the median over rounds of the ratio to the reference of that round."""
    width = max(map(len, timed))
    print(f"{'':{width}}  {'median':>10} {'p99':>10}   ratio to {reference}, median of rounds (min … max)")
    for name, rounds in timed.items():
        every = [value for times in rounds for value in times]
        ratios = sorted(
            statistics.median(times) / statistics.median(of) for times, of in zip(rounds, timed[reference], strict=True)
        )
        print(
            f"{name:{width}}  {statistics.median(every):7.2f} {unit} {percentile(every, 0.99):7.2f} {unit}"
            f"   {statistics.median(ratios):.2f} ({ratios[0]:.2f} … {ratios[-1]:.2f})"
        )

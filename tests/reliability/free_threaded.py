"""Free-threaded Python: the core keeps the GIL off, and a second caller thread nearly doubles the calls.

It does where the two share no instance: if each calls a pipe of its own, and if a node has an instance for each of
them. Two callers of one instance run alternately; their gain is measured, and nothing is promised about it.

python3.14t tests/reliability/free_threaded.py --seconds 10
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import hami
from promise import Figures, keep, main

ROUNDS = 5  # of one caller and of two, in turn
SHORTEST_S = 0.05  # of one measurement
GAIN = 1.8  # of a second caller on a second core
OPERATIONS = 20_000  # of a request that computes: about a millisecond


@hami.register
class FreeThreadedSum(hami.Backend):
    """Computes in Python, and returns what it was given."""

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            total = 0
            for number in range(OPERATIONS):
                total += number * number
            item["result"] = item["data"]


def gil_is_on() -> bool:
    enabled: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return enabled()


def calls_per_s(pipes: Sequence[hami.Pipe], seconds: float) -> float:
    """Return how often threads called these pipes, one thread each, all together."""
    counts, wrong = [0] * len(pipes), [0] * len(pipes)
    begin = time.monotonic()

    # Only local variables: threads that read one of a closure or of a module write its reference count in turn.
    def call(caller: int, pipe: hami.Pipe, until: float) -> None:
        clock, number, others = time.monotonic, 0, 0
        while clock() < until:
            others += pipe({"data": number})["result"] != number
            number += 1
        counts[caller], wrong[caller] = number, others

    threads = [threading.Thread(target=call, args=[*each, begin + seconds]) for each in enumerate(pipes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    keep(not any(wrong), f"{sum(wrong)} of {sum(counts)} callers got another answer")
    return sum(counts) / (time.monotonic() - begin)


def compared(one: hami.Pipe, other: hami.Pipe, seconds: float) -> tuple[float, float]:
    """Return the calls of one caller in a second, and how many times as many a second caller makes of them."""
    each_s = max(SHORTEST_S, seconds / (2 * ROUNDS))
    pairs = [(calls_per_s([one], each_s), calls_per_s([one, other], each_s)) for _ in range(ROUNDS)]
    return statistics.median(alone for alone, _ in pairs), statistics.median(both / alone for alone, both in pairs)


def run(seconds: float, strict: bool) -> Figures:
    """Compare two callers with one."""
    keep(not gil_is_on(), f"the GIL is on in {sys.executable}; free-threaded CPython is needed, such as 3.14t")
    instances = {"backend": "FreeThreadedSum", "instance_num": 2}
    with hami.pipe("Identity") as first, hami.pipe("Identity") as second, hami.pipe(instances) as sums:
        calls, own = compared(first, second, seconds / 3)
        _, computing = compared(sums, sums, seconds / 3)
        _, shared = compared(first, first, seconds / 3)
    keep(not gil_is_on(), "a pipe turned the GIL on")
    for what, gain in {"pipes of their own": own, "an instance each": computing}.items():
        keep(not strict or gain >= GAIN, f"two callers with {what} make {gain:.2f} times the calls of one, not {GAIN}")
    return {
        "calls/s of one": round(calls),
        "gain of a second with a pipe of its own": round(own, 2),
        "with an instance in Python for each": round(computing, 2),
        "at one instance": round(shared, 2),
    }


if __name__ == "__main__":
    main(run, "the GIL stays off, and callers run in parallel")

"""Free-threaded Python: the core keeps the GIL off, and a second caller thread nearly doubles the calls.

python3.14t tests/reliability/free_threaded.py --seconds 10
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable

import hami
from promise import Figures, keep, main

ROUNDS = 5  # of one caller and of two, in turn
SHORTEST_S = 0.05  # of one measurement
GAIN = 1.8  # of a second caller on a second core


def gil_is_on() -> bool:
    enabled: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return enabled()


def calls_per_s(callers: int, seconds: float) -> float:
    """Return how often threads called one pipe, all together."""
    counts, wrong = [0] * callers, [0] * callers
    with hami.pipe("Identity") as pipe:
        begin = time.monotonic()

        def call(caller: int) -> None:
            while time.monotonic() - begin < seconds:
                number = counts[caller]
                wrong[caller] += pipe({"data": number})["result"] != number
                counts[caller] += 1

        threads = [threading.Thread(target=call, args=[caller]) for caller in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    keep(not any(wrong), f"{sum(wrong)} of {sum(counts)} callers got another answer")
    return sum(counts) / seconds


def run(seconds: float, strict: bool) -> Figures:
    """Compare two callers with one."""
    keep(not gil_is_on(), f"the GIL is on in {sys.executable}; free-threaded CPython is needed, such as 3.14t")
    each_s = max(SHORTEST_S, seconds / (2 * ROUNDS))
    pairs = [(calls_per_s(1, each_s), calls_per_s(2, each_s)) for _ in range(ROUNDS)]
    gain = statistics.median(two / one for one, two in pairs)
    keep(not gil_is_on(), "a pipe turned the GIL on")
    keep(not strict or gain >= GAIN, f"two callers make {gain:.2f} times the calls of one, promised {GAIN}")
    return {"calls/s of one": round(statistics.median(one for one, _ in pairs)), "gain of a second": round(gain, 2)}


if __name__ == "__main__":
    main(run, "the GIL stays off, and callers run in parallel")

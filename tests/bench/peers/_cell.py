"""Measure one contender with one work in this process, and print a JSON line for each number of callers.

python _cell.py DATA WORK CONTENDER CALLERS,CALLERS,… SECONDS
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import _contenders
import _load
from _works import Work, works

HOPS = 20


def load(work: Work, contender: str, callers: list[int], seconds: float) -> Any:
    payloads = work.payloads()
    call = getattr(_contenders, contender)(work)
    if contender.startswith("tasks_"):
        for count in callers:
            yield {"callers": count, **_load.by_tasks(call, payloads, count, seconds)}
        return
    expected = _contenders.direct(work)(payloads[0])
    if (answer := call(payloads[0])) != expected:
        raise SystemExit(f"the result is {answer!r}, expected {expected!r}")
    for count in callers:
        warm = _load.LEARNS if contender == "default" else _load.WARM
        figures = _load.by_threads(call, payloads, count, seconds, warm)
        if not figures["calls"]:
            raise SystemExit(f"no call of {count} callers finished within {seconds} s")
        if contender == "limit" and work.gains:
            figures["calls_per_s"] *= work.max_batch
        yield {"callers": count, **figures}


def hops(backend: str, seconds: float) -> Any:
    """Yield the cost of one more node: a long and a short chain alternate; medians of single calls."""
    import statistics
    import time

    import hami

    def chain(length: int) -> Any:
        nodes: dict[str, dict[str, Any]] = {f"n{i}": {"backend": backend, "next": f"n{i + 1}"} for i in range(length)}
        del nodes[f"n{length - 1}"]["next"]
        return hami.pipe(nodes)

    times: dict[int, list[float]] = {2: [], 2 + HOPS: []}
    with chain(2) as short, chain(2 + HOPS) as long:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for length, pipe in ((2, short), (2 + HOPS, long)):
                for _ in range(50):
                    before = time.perf_counter_ns()
                    pipe({"data": 1})
                    times[length].append((time.perf_counter_ns() - before) / 1e3)
    few, many = (statistics.median(times[length]) for length in sorted(times))
    yield {"callers": 1, "hop_us": (many - few) / HOPS}


def pipes(count: int) -> Any:
    """Yield the threads and the memory left after `count` pipes were opened, called and closed."""
    import hami

    def cycle() -> None:
        with hami.pipe({"backend": "BackgroundThread[Identity]", "instance_num": 2}) as pipe:
            pipe({"data": 1})

    for _ in range(20):  # allocations that happen once and are kept
        cycle()
    threads, memory = _load.threads_now(), _load.rss_mb()
    for _ in range(count):
        cycle()
    yield {"callers": 1, "threads_left": _load.threads_now() - threads, "rss_grown_mb": _load.rss_mb() - memory}


def main() -> None:
    data, name, contender, callers, seconds = sys.argv[1:]
    if name == "hop_inline":
        lines = hops("Identity", float(seconds))
    elif name == "hop_handed_over":  # a thread wakes up fastest on the same core
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        lines = hops("BackgroundThread[Identity]", float(seconds))
    elif name == "pipes":
        lines = pipes(1000)
    else:
        counts = [int(count) for count in callers.split(",")]
        lines = load(works(Path(data))[name], contender, counts, float(seconds))
    for line in lines:
        print(json.dumps({"work": name, "contender": contender, **line}), flush=True)
    sys.stdout.flush()
    os._exit(0)  # some contenders have threads that never end


if __name__ == "__main__":
    main()

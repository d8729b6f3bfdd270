"""Calls a function of a request from threads of Python, and measures as the core does for a pipe."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

Function = Callable[[dict[str, Any]], object]

PARTS = 16  # buckets for each power of two, as in the histograms of the core


def bucket_of(nanoseconds: int) -> tuple[float, float]:
    """Return the smallest and the largest value of the bucket of a time, in ms."""
    shift = max(0, nanoseconds.bit_length() - PARTS.bit_length())
    part = nanoseconds >> shift
    return (part << shift) / 1e6, (((part + 1) << shift) - 1) / 1e6


def load_callable(function: Function) -> Callable[..., dict[str, Any]]:
    """Return a function that loads `function`, with the arguments and the result of the core's `Pipe.load`."""

    def load(requests: list[dict[str, Any]], *, clients: int, warmup: int, calls: int, seed: int) -> dict[str, Any]:
        numbers = itertools.count()
        tallies = [_Tally() for _ in range(clients)]
        begin = threading.Barrier(clients + 1)

        def client(tally: _Tally, choose: random.Random) -> None:
            for _ in range(warmup):
                _outcome(function, choose.choice(requests))
            begin.wait()
            while next(numbers) < calls:
                tally.add(*_outcome(function, choose.choice(requests)))

        threads = [
            threading.Thread(target=client, args=(tally, random.Random(seed + number)), daemon=True)
            for number, tally in enumerate(tallies)
        ]
        for thread in threads:
            thread.start()
        begin.wait()
        start = time.perf_counter()
        for thread in threads:
            thread.join()
        return _merged(tallies, time.perf_counter() - start)

    return load


def _outcome(function: Function, request: dict[str, Any]) -> tuple[int, BaseException | None]:
    """Return the nanoseconds of a call, and its exception."""
    given = dict(request)
    start = time.perf_counter_ns()
    try:
        function(given)
    except Exception as error:
        return time.perf_counter_ns() - start, error
    return time.perf_counter_ns() - start, None


class _Tally:
    """What one thread has measured."""

    def __init__(self) -> None:
        self.latencies: list[int] = []
        self.failed: Counter[str] = Counter()
        self.examples: dict[str, str] = {}

    def add(self, took: int, error: BaseException | None) -> None:
        if error is None:
            self.latencies.append(took)
            return
        kind = type(error).__name__
        self.failed[kind] += 1
        self.examples.setdefault(kind, str(error))


def _merged(tallies: list[_Tally], elapsed: float) -> dict[str, Any]:
    failed: Counter[str] = Counter()
    examples: dict[str, str] = {}
    buckets: Counter[tuple[float, float]] = Counter()
    total = completed = 0
    for tally in tallies:
        failed.update(tally.failed)
        examples = {**tally.examples, **examples}
        completed += len(tally.latencies)
        total += sum(tally.latencies)
        buckets.update(map(bucket_of, tally.latencies))
    return {
        "calls": completed + sum(failed.values()),
        "failed": dict(failed),
        "examples": examples,
        "elapsed_s": elapsed,
        "latency_ms": (total / 1e6, [(*bounds, count) for bounds, count in sorted(buckets.items())]),
    }

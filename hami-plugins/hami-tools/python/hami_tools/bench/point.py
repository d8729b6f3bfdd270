"""Point: the measurement of a pipe under one load."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hami import Pipe
from hami.native import load_pipe
from hami.observe.histogram import Histogram
from hami.observe.node_stats import NodeStats

from hami_tools.bench.load import Load, poisson
from hami_tools.bench.process import cpu_seconds, rss_mib

WARMUP_CALLS = 3  # of each client, so that threads and instances have started
STABLE_WINDOWS = 3  # that must agree
MAX_WINDOWS = 10  # after which a load that does not get stable is reported as it is

Stats = Mapping[str, NodeStats]


@dataclass(frozen=True)
class Point:
    """The measurement of a pipe under one load."""

    load: Load
    elapsed_s: float
    completed: int
    good: int
    """Completed requests within the objective."""
    latency_ms: Histogram
    failed: dict[str, int]
    """Failed requests by the class of the exception."""
    examples: dict[str, str]
    """The message of the first exception of each class."""
    late_ms: float
    """The longest delay with which a request of an open loop started."""
    cpu_s: float
    rss_mib: float
    before: Stats = field(repr=False)
    after: Stats = field(repr=False)

    @property
    def throughput(self) -> float:
        """Return completed requests per second."""
        return self.completed / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def goodput(self) -> float:
        """Return requests per second within the objective."""
        return self.good / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def cpu_ms(self) -> float:
        """Return the CPU time of the process for each completed request, in ms."""
        return self.cpu_s * 1e3 / self.completed if self.completed else float("nan")

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as a dict, for JSON."""
        return {
            "load": str(self.load),
            "seconds": self.elapsed_s,
            "completed": self.completed,
            "throughput": self.throughput,
            "goodput": self.goodput,
            "latency_ms": self.latency_ms.as_dict(),
            "late_ms": self.late_ms,
            "cpu_ms": self.cpu_ms,
            "rss_mib": self.rss_mib,
            "failed": self.failed,
            "examples": self.examples,
        }


def measure(
    pipe: Pipe,
    inputs: Sequence[Mapping[str, Any]],
    load: Load,
    seconds: float,
    slo: float | None = None,
    seed: int = 0,
    *,
    warm_up: bool = True,
) -> Point:
    """Load a pipe for some seconds and return what was measured.

    Args:
        pipe: The pipe.
        inputs: Requests, chosen at random.
        load: How they arrive.
        seconds: Time of the measurement; a trace and a number of calls run to their end.
        slo: Seconds that a good request takes at most.
        seed: Of the choice of inputs and of the arrivals.
        warm_up: Whether each client runs some calls first.
    """
    run, requests = partial(load_pipe, pipe), [dict(request) for request in inputs]
    if load.calls is None and warm_up:
        run(requests, clients=load.clients, per_call=load.per_call, calls=WARMUP_CALLS * load.clients, seed=seed)
    arrivals = load.arrivals if load.rate is None else poisson(load.rate, seconds, seed)
    before, used = pipe.stats(), cpu_seconds()
    measured = run(
        requests,
        clients=load.clients,
        per_call=load.per_call,
        calls=load.calls,
        duration=None if arrivals or load.calls else seconds,
        arrivals=list(arrivals),
        objective=slo,
        seed=seed,
    )
    return Point(
        load=load,
        elapsed_s=measured["elapsed_s"],
        completed=measured["completed"],
        good=measured["good"],
        latency_ms=Histogram(*measured["latency_ms"]),
        failed=measured["failed"],
        examples=measured["examples"],
        late_ms=measured["late_s"] * 1e3,
        cpu_s=cpu_seconds() - used,
        rss_mib=rss_mib(),
        before=before,
        after=pipe.stats(),
    )


def measure_until_stable(
    pipe: Pipe, inputs: Sequence[Mapping[str, Any]], load: Load, seconds: float, slo: float | None, tolerance: float
) -> Point:
    """Measure windows until the throughput and p99 of the last three differ by little, and return these three as one.

    Args:
        pipe: The pipe.
        inputs: Requests, chosen at random.
        load: How they arrive.
        seconds: Time of each window.
        slo: Seconds that a good request takes at most.
        tolerance: Difference of the largest and the smallest value, as a share of the largest.
    """
    windows: list[Point] = []
    while len(windows) < MAX_WINDOWS:
        windows.append(measure(pipe, inputs, load, seconds, slo, seed=len(windows)))
        last = windows[-STABLE_WINDOWS:]
        if len(last) == STABLE_WINDOWS and is_stable(last, tolerance):
            break
    return merged(windows[-STABLE_WINDOWS:])


def is_stable(points: Sequence[Point], tolerance: float) -> bool:
    """Return whether throughput and p99 of the points differ by at most a share of the largest."""
    for values in ([point.throughput for point in points], [point.latency_ms.p99 for point in points]):
        if any(map(math.isnan, values)) or max(values) - min(values) > tolerance * max(values):
            return False
    return True


def merged(points: Sequence[Point]) -> Point:
    """Return measurements of the same load as one."""
    failed: Counter[str] = Counter()
    examples: dict[str, str] = {}
    latency = Histogram()
    for point in points:
        failed.update(point.failed)
        examples = {**point.examples, **examples}
        latency = latency + point.latency_ms
    return Point(
        load=points[0].load,
        elapsed_s=sum(point.elapsed_s for point in points),
        completed=sum(point.completed for point in points),
        good=sum(point.good for point in points),
        latency_ms=latency,
        failed=dict(failed),
        examples=examples,
        late_ms=max(point.late_ms for point in points),
        cpu_s=sum(point.cpu_s for point in points),
        rss_mib=max(point.rss_mib for point in points),
        before=points[0].before,
        after=points[-1].after,
    )

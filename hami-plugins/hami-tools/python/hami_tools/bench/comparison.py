"""Compares two pipes: throughput, measured alternately, and the results of each input."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from hami import Pipe

from hami_tools.bench.load import Load
from hami_tools.bench.point import Point, measure, merged
from hami_tools.differences import compare

# Two-sided 95 % quantiles of Student's t distribution, by degrees of freedom from 1 on.
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131)
MAX_DIFFERENCES = 3  # that are described
MAX_ERROR = 160  # characters of an exception in a description


@dataclass(frozen=True)
class Ratio:
    """The throughput of the second pipe divided by that of the first, with a 95 % interval."""

    ratio: float
    low: float
    high: float
    rounds: int

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as a dict, for JSON."""
        return asdict(self)


@dataclass
class Difference:
    """How the results of two pipes differ."""

    inputs: int = 0
    equal: int = 0
    failed: int = 0
    """Inputs that fail in both pipes: nothing is compared."""
    largest: float = 0.0
    """Of the absolute differences of numbers."""
    other: list[str] = field(default_factory=list)
    """What differs in another way than by a number, for the first inputs."""

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as a dict, for JSON."""
        return asdict(self)


def compare_throughput(
    pipes: tuple[Pipe, Pipe], inputs: Sequence[Mapping[str, Any]], load: Load, seconds: float, rounds: int
) -> tuple[Ratio, Point, Point]:
    """Measure two pipes alternately, so that both see the same disturbances; return the ratio and both results.

    Args:
        pipes: The two pipes.
        inputs: Requests, chosen at random; the same for both.
        load: How they arrive.
        seconds: Time for each pipe, over all rounds.
        rounds: Number of measurements of each pipe, at least 2.
    """
    points: tuple[list[Point], list[Point]] = ([], [])
    for number in range(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            warm_up = number == 0
            points[which].append(measure(pipes[which], inputs, load, seconds / rounds, seed=number, warm_up=warm_up))
    logs = [
        math.log(other.throughput / one.throughput)
        for one, other in zip(*points, strict=True)
        if one.throughput and other.throughput
    ]
    return ratio_of(logs), merged(points[0]), merged(points[1])


def ratio_of(logs: Sequence[float]) -> Ratio:
    """Return the geometric mean of ratios, which are given as logarithms, with its 95 % interval."""
    if not logs:
        return Ratio(math.nan, math.nan, math.nan, 0)
    mean = statistics.fmean(logs)
    if len(logs) == 1:
        return Ratio(math.exp(mean), 0.0, math.inf, 1)
    quantile = T_95[min(len(logs) - 1, len(T_95)) - 1]
    half = min(quantile * statistics.stdev(logs) / math.sqrt(len(logs)), 100.0)  # exp of more overflows
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(logs))


def compare_results(pipes: tuple[Pipe, Pipe], inputs: Sequence[Mapping[str, Any]]) -> Difference:
    """Run each input once through both pipes and compare the results.

    Args:
        pipes: The two pipes.
        inputs: The requests.
    """
    difference = Difference()
    for number, request in enumerate(inputs):
        one, other = (_result(pipe, request) for pipe in pipes)
        difference.inputs += 1
        if isinstance(one, BaseException) and isinstance(other, BaseException):
            difference.failed += 1
            if len(difference.other) < MAX_DIFFERENCES:
                shown = [f"{type(error).__name__}: {error}".partition("\n")[0][:MAX_ERROR] for error in (one, other)]
                difference.other.append(f"input {number + 1} fails in both: {' and '.join(dict.fromkeys(shown))}")
            continue
        found = compare(one, other)
        difference.largest = max(difference.largest, found.largest)
        difference.equal += not found.differs
        if found.reason and len(difference.other) < MAX_DIFFERENCES:
            difference.other.append(f"input {number + 1}: {found.reason}")
    return difference


def _result(pipe: Pipe, request: Mapping[str, Any]) -> Any:
    try:
        return pipe(dict(request))["result"]
    except Exception as error:
        return error

"""What `hami bench` prints about a result, and the verdict against a stored one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hami.cli import print_lines, print_table, printable

from hami_tools.bench.tables import ceiling_rows, comparison_lines, loss_lines, point_rows, scenario_lines
from hami_tools.figures import figure


def print_result(found: Mapping[str, Any]) -> None:
    """Print the result as tables and sentences."""
    if "ratios" in found:
        print_lines(comparison_lines(found))
        for key, name in (("points", "source"), ("other_points", "compared_with")):
            print(f"\n{found[name]}")
            print_table(*point_rows(found[key], found["slo_s"]))
    else:
        print_table(*point_rows(found["points"], found["slo_s"]))
    print_lines(scenario_lines(found))
    if found.get("losses"):
        print()
        print_table(*ceiling_rows(found["ceilings"][0]))
        print_lines(loss_lines(found["losses"], found["ceilings"][0]))
    if found["explanation"]:
        print()
    print_lines(found["explanation"])
    print_lines(_failure_lines([*found["points"], *found.get("other_points", ())], found["failing_inputs"]))
    print_lines(f"worse: {line}" for line in found["worse"])


def _failure_lines(points: Sequence[Mapping[str, Any]], failing: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Yield how many requests failed under each load, why, and with which inputs."""
    for point in points:
        for kind, count in point["failed"].items():
            example = " ".join(printable(point["examples"].get(kind, "")).split())
            yield f"{point['load']}: {count:,} failed with {kind}: {example}"
    for entry in failing:
        yield f"{entry['input']} fails: {entry['error']}"


def regressions(
    stored: Sequence[Mapping[str, Any]], measured: Sequence[Mapping[str, Any]], tolerance: float
) -> list[str]:
    """Return a line for each figure of a load that is worse than the stored one by more than the tolerance."""
    before = {point.get("load"): point for point in stored}
    lines = []
    for point in measured:
        old = before.get(point["load"])
        if old is None:
            continue
        if point["throughput"] < old["throughput"] * (1 - tolerance):
            lines.append(
                f"{point['load']}: {figure(point['throughput'])} per second, before {figure(old['throughput'])}"
            )
        p99, old_p99 = (values["latency_ms"].get("p99", math.nan) for values in (point, old))
        if p99 > old_p99 * (1 + tolerance):
            lines.append(f"{point['load']}: p99 {figure(p99)} ms, before {figure(old_p99)} ms")
    return lines

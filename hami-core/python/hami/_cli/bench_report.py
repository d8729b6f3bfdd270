"""What `hami bench` prints, and its verdict against a stored result."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hami._text import printable
from hami.observe.bench.losses import CAUSES
from hami.observe.bench.point import Point

SMALL_LOSS = 0.005  # of the ceiling
FASTER = "gained: batches ran faster than alone"


def point_rows(points: Sequence[Point], slo: float | None) -> tuple[list[list[str]], list[str]]:
    """Return one row for each load, and the header."""
    header = ["load", "per second", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "CPU ms", "RSS MiB", "failed"]
    if slo is not None:
        header.insert(2, f"within {slo * 1e3:g} ms")
    rows = []
    for point in points:
        latency = point.latency_ms
        row = [str(point.load), figure(point.throughput)]
        if slo is not None:
            row.append(figure(point.goodput))
        row += [figure(value) for value in (latency.p50, latency.p90, latency.p99, latency.p999, point.cpu_ms)]
        row += [f"{point.rss_mib:.0f}", str(sum(point.failed.values()))]
        rows.append(row)
    return rows, header


def figure(value: float) -> str:
    """Return a figure with three digits, as a whole number from 1000 on, and in millions from a million on."""
    if math.isnan(value):
        return "-"
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g} M"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def ceiling_rows(ceiling: Mapping[str, Any]) -> tuple[list[list[str]], list[str]]:
    """Return one row for each batch size of the slowest node alone, and the header."""
    rows = [[figure(batch["items"]), figure(batch["ms"]), figure(batch["throughput"])] for batch in ceiling["batches"]]
    instances = "1 instance" if ceiling["instances"] == 1 else f"{ceiling['instances']} instances"
    return rows, [f"batch of {printable(ceiling['node'])}", "ms alone", f"per second, {instances}"]


def loss_lines(losses: Sequence[Mapping[str, Any]], ceiling: Mapping[str, Any]) -> Iterator[str]:
    """Yield how far each load stays below the ceiling, and why; small causes are left out."""
    yield f"plateau batch {figure(ceiling['plateau_batch'])}, ceiling {figure(ceiling['throughput'])} per second"
    for entry in losses:
        yield ""
        share = entry["achieved"] / entry["ceiling"]
        if entry["gap"] <= 0:
            yield f"{entry['load']}: {figure(entry['achieved'])} per second, at the ceiling"
            continue
        yield (
            f"{entry['load']}: {figure(entry['achieved'])} per second, {share:.0%} of the ceiling; "
            f"{figure(entry['gap'])} lost to"
        )
        for cause, lost in entry["causes"].items():
            if abs(lost) >= SMALL_LOSS * entry["ceiling"]:
                yield f"  {figure(lost):>8}  {CAUSES[cause] if lost > 0 else FASTER}"


def failure_lines(points: Sequence[Point], failing: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Yield how many requests failed under each load, why, and with which inputs."""
    for point in points:
        for kind, count in point.failed.items():
            example = " ".join(printable(point.examples.get(kind, "")).split())
            yield f"{point.load}: {count:,} failed with {kind}: {example}"
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

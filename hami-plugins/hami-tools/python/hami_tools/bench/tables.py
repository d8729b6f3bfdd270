"""The result of a benchmark as rows and lines, for terminals and web pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hami.cli import printable

from hami_tools.bench.losses import CAUSES
from hami_tools.figures import figure

SMALL_LOSS = 0.005  # of the ceiling
FASTER = "gained: batches ran faster than alone"
PERCENTILES = ("p50", "p90", "p99", "p99.9")

Rows = tuple[list[list[str]], list[str]]


def point_rows(points: Sequence[Mapping[str, Any]], slo_s: float | None) -> Rows:
    """Return one row for each load, and the header."""
    header = ["load", "per second", *(f"{part} ms" for part in PERCENTILES), "CPU ms", "RSS MiB", "failed"]
    if slo_s is not None:
        header.insert(2, f"within {slo_s * 1e3:g} ms")
    rows = []
    for point in points:
        row = [point["load"], figure(point["throughput"])]
        if slo_s is not None:
            row.append(figure(point["goodput"]))
        row += [figure(point["latency_ms"].get(part)) for part in PERCENTILES]
        row += [figure(point["cpu_ms"]), f"{point['rss_mib']:.0f}", str(sum(point["failed"].values()))]
        rows.append(row)
    return rows, header


def ceiling_rows(ceiling: Mapping[str, Any]) -> Rows:
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
        for lost, text in causes_of(entry):
            yield f"  {figure(lost):>8}  {text}"


def causes_of(entry: Mapping[str, Any]) -> Iterator[tuple[float, str]]:
    """Yield the causes of the losses of one load that are worth showing."""
    for cause, lost in entry["causes"].items():
        if abs(lost) >= SMALL_LOSS * entry["ceiling"]:
            yield lost, CAUSES[cause] if lost > 0 else FASTER


def scenario_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the figure of each scenario."""
    for entry in found.get("scenarios", ()):
        yield f"{entry['scenario']}: {entry['metric']} {figure(entry['value'])} {entry['unit']}"


def comparison_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the ratios of the throughput of two pipes, and how their results differ."""
    yield f"throughput of {found['compared_with']} / {found['source']}"
    for entry in found["ratios"]:
        interval = f"95 % interval {figure(entry['low'])} to {figure(entry['high'])}, {entry['rounds']} rounds"
        verdict = ", no difference shown" if entry["low"] <= 1 <= entry["high"] else ""
        yield f"  {entry['load']}: {figure(entry['ratio'])} ({interval}){verdict}"
    difference = found["difference"]
    text = f"{difference['equal']} of {difference['inputs']} results are equal"
    if difference["failed"]:
        text += f", and {difference['failed']} fail in both"
    if difference["largest"]:
        text += f"; numbers differ by at most {figure(difference['largest'])}"
    yield text
    yield from (f"  {line}" for line in difference["other"])

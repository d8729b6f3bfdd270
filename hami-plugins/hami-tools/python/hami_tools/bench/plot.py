"""Plots the result of a benchmark with matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hami import ConfigError
from hami.cli import printable

from hami_tools.bench.tables import PERCENTILES

SIZE = (9.0, 4.5)  # inches


def check_matplotlib() -> None:
    """Raise ConfigError if matplotlib is not installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise ConfigError('--plot needs matplotlib: pip install "hami-tools[plot]"') from None


def plot(found: Mapping[str, Any], path: str) -> None:
    """Plot throughput and latency of each load; the suffix of the path decides the format.

    Args:
        found: The result, as `hami bench --json` prints it.
        path: The file to write.

    Raises:
        ConfigError: matplotlib cannot write this format.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, layout="constrained")
    throughput, latency = figure.subplots(1, 2)
    loads = [point["load"] for point in found["points"]]
    _plot_throughput(throughput, loads, found)
    for part in PERCENTILES:
        values = [point["latency_ms"].get(part, float("nan")) for point in found["points"]]
        latency.plot(loads, values, marker="o", label=part)
    latency.set_yscale("log")
    latency.set_ylabel("latency, ms")
    latency.legend()
    for axes in (throughput, latency):
        axes.tick_params(axis="x", rotation=30)
        axes.grid(axis="y", alpha=0.3)
    figure.suptitle(printable(found["source"]), parse_math=False)
    try:
        with rc_context({"svg.fonttype": "none"}):  # text that readers can search, not its outlines
            figure.savefig(path)
    except ValueError as error:
        raise ConfigError(f"--plot {printable(path)}: {error}") from None


def _plot_throughput(axes: Any, loads: list[str], found: Mapping[str, Any]) -> None:
    axes.bar(loads, [point["throughput"] for point in found["points"]], label="achieved")
    if found.get("ceilings"):
        axes.axhline(found["ceilings"][0]["throughput"], linestyle="--", color="black", label="ceiling")
        axes.legend(loc="lower right")
    axes.set_ylabel("requests per second")

"""The texts of AccelModel: the table of `s()` and the lines of `dirty_run`. Colour only on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

_BOLD, _RESET = "\x1b[1m", "\x1b[0m"


def has_colour(stream: TextIO) -> bool:
    """Return whether a stream is a terminal and the user has not set NO_COLOR."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def table(rows: Sequence[Sequence[Any]], header: Sequence[str] = ()) -> list[str]:
    """Return lines with aligned columns."""
    texts = [[str(cell) for cell in row] for row in ([header] if header else []) + [list(row) for row in rows]]
    widths = [max(len(row[column]) for row in texts) for column in range(len(texts[0]))] if texts else []
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in texts]


def summary_text(summary: Mapping[str, Any], colour: bool = False) -> str:
    """Return the table of `AccelModel.s()`."""
    bold, reset = (_BOLD, _RESET) if colour else ("", "")
    lines = [f"{bold}{summary['file']}{reset}  on {summary['device']}"]
    for index, name in enumerate(summary["models"]):
        lines.append(f"{'*' if index == summary['select'] else ' '} {index}  {name}")
    lines.append(
        f"slots {summary['n_task']}, function-calls {summary['function_calls']}, buffers {summary['buffers_mb']:.3f} MB"
    )
    rows = []
    for direction in ("inputs", "outputs"):
        for spec in summary[direction]:
            quantization = spec["quantization"]
            scaled = "-" if quantization is None else "scale {:g}, zero point {}".format(*quantization)
            rows.append([direction[:-1], spec["name"], spec["dtype"], spec["shape"], spec["layout"] or "-", scaled])
    return "\n".join(lines + table(rows, ["", "name", "dtype", "shape", "layout", "quantisation"]))


def durations_text(name: str, figures: Mapping[str, Any]) -> str:
    """Return the line of `AccelModel.dirty_run()`."""
    us = figures["mean_us"]
    return (
        f"{name}: {figures['runs']} runs, mean {us:.1f} us = {us / 1e3:.4f} ms = {us / 1e6:.6f} s = "
        f"{us / 6e7:.8f} min, min {figures['min_us']:.1f} us, max {figures['max_us']:.1f} us"
    )


def print_summary(summary: Mapping[str, Any]) -> None:
    print(summary_text(summary, has_colour(sys.stdout)))

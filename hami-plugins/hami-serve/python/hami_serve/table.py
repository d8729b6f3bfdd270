"""Models as a table of text."""

from __future__ import annotations

import time
from collections.abc import Iterable

from hami_serve.model import ModelInfo

TITLES = (
    *("id", "component", "version", "class", "device", "memory"),
    *("created", "calls", "p50 ms", "p99 ms", "state"),
)
WIDEST = 40  # characters of a cell


def table_of(models: Iterable[ModelInfo]) -> str:
    rows = [TITLES, *map(_row, models)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(TITLES))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _row(model: ModelInfo) -> tuple[str, ...]:
    state = f"{model.state}: {model.reason}" if model.reason else str(model.state)
    return (
        str(model.handle.generation),
        model.handle.component,
        model.handle.version,
        _short(model.backends or "-"),
        _short(model.device),
        str(model.memory) if model.memory else "-",
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(model.created)),
        str(model.calls),
        _ms(model.p50_ms),
        _ms(model.p99_ms),
        state,
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _short(text: str) -> str:
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"

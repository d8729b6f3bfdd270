"""Tables and progress bars for terminals; tables use rich (hami-core[rich]) if it is installed."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from hami._cli.show import aligned

WIDTH = 30  # characters of the bar
MIN_TOTAL = 4  # steps; fewer need no bar


def print_table(rows: Sequence[Sequence[str]], header: Sequence[str] | None = None) -> None:
    """Print rows in columns; as plain lines, for other programs, if the output is not a terminal or rich is missing."""
    rich_table = _rich("rich.table") if sys.stdout.isatty() else None
    if rich_table is None:
        print("\n".join(aligned([header, *rows] if header else rows)))
        return
    table = rich_table.Table(box=None, show_header=header is not None, pad_edge=False)
    for name in header or rows[0] if rows else ():
        table.add_column(name)
    for row in rows:
        table.add_row(*(_rich("rich.text").Text(cell) for cell in row))
    _rich("rich.console").Console().print(table)


def _rich(module: str) -> Any:
    """Import a module of rich, or return None."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError:
        return None


class Progress:
    """A progress bar on standard error; invisible if that is not a terminal.

    with Progress(100) as progress:
        progress.advance()
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._started = time.monotonic()
        self._visible = total >= MIN_TOTAL and sys.stderr.isatty()

    def __enter__(self) -> Progress:
        self._draw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.clear()

    def advance(self) -> None:
        """Count one step."""
        self._done += 1
        self._draw()

    def clear(self) -> None:
        """Erase the bar, so that a line can be printed in its place."""
        if self._visible:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _draw(self) -> None:
        if self._visible:
            print(f"\r{self.text()}", end="", file=sys.stderr, flush=True)

    def text(self) -> str:
        """Return the bar with the number of steps and the estimated time left."""
        filled = WIDTH * self._done // self._total
        seconds = time.monotonic() - self._started
        left = f"  {seconds / self._done * (self._total - self._done):.0f} s left" if self._done else ""
        return f"[{'#' * filled}{'.' * (WIDTH - filled)}] {self._done}/{self._total}{left}"

"""A progress bar on standard error for work on many inputs; silent where that is no terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType

WIDTH = 30
FEW = 3  # up to so many inputs need no bar


class Progress:
    """Counts steps of a known total.

    with Progress(100) as progress:
        progress.advance()
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._started = time.monotonic()
        self._visible = total > FEW and sys.stderr.isatty()

    def __enter__(self) -> Progress:
        self._draw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.clear()

    def advance(self) -> None:
        self._done += 1
        self._draw()

    def clear(self) -> None:
        """Take the bar away, so that a line can be printed in its place."""
        if self._visible:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _draw(self) -> None:
        if self._visible:
            print(f"\r{self.text()}", end="", file=sys.stderr, flush=True)

    def text(self) -> str:
        filled = WIDTH * self._done // self._total
        seconds = time.monotonic() - self._started
        left = f"  {seconds / self._done * (self._total - self._done):.0f} s left" if self._done else ""
        return f"[{'#' * filled}{'.' * (WIDTH - filled)}] {self._done}/{self._total}{left}"

"""Show the progress of a long operation, as a bar on a terminal."""

from __future__ import annotations

import math
import shutil
import sys
import threading
import time
from contextlib import suppress
from types import TracebackType

__all__ = ["Progress"]

BAR_WIDTH = 30  # characters
REDRAW_INTERVAL = 0.1  # seconds; drawing more often costs time and cannot be read


class Progress:
    """Show how much of a known total is done, in a bar on standard error.

        with Progress(len(files), "reading") as progress:
            for file in files:
                ...
                progress.advance()

    Nothing is written if standard error is not a terminal; `visible` is then False. The end of the `with` block removes
    the bar. Any thread may call the methods.

    Args:
        total: the number of steps, more than 0. For an int the bar shows the count, as "3/10", and the time left; for a
            float, which is an estimate, it shows a percentage.
        title: text in front of the bar.
        enabled: False never shows the bar.
    """

    def __init__(self, total: float, title: str = "", *, enabled: bool = True) -> None:
        self._total = total
        self._title = title
        self._done: float = 0
        self._note = ""
        self._started = time.monotonic()
        self._last_drawn = -math.inf
        self._lock = threading.Lock()  # guards everything that update() changes
        self._stream = sys.stderr
        self.visible = enabled and self._stream is not None and self._stream.isatty()

    def __enter__(self) -> Progress:
        self.update(0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.clear()

    def advance(self, steps: float = 1) -> None:
        """Add completed steps."""
        with self._lock:
            self._done += steps
            self._draw()

    def update(self, done: float, note: str = "") -> None:
        """Set the number of completed steps, and a text behind the bar."""
        with self._lock:
            self._done, self._note = done, note
            self._draw()

    def clear(self) -> None:
        """Remove the bar, so that the program can print a line; the next step shows it again."""
        with self._lock, suppress(OSError, ValueError):
            self._last_drawn = -math.inf
            self._write("")

    def _draw(self) -> None:
        now = time.monotonic()
        if self.visible and now - self._last_drawn >= REDRAW_INTERVAL:
            self._last_drawn = now
            with suppress(OSError, ValueError):  # a closed terminal must not stop the operation
                self._write(self._line(now - self._started, shutil.get_terminal_size().columns - 1))

    def _line(self, seconds: float, width: int) -> str:
        fraction = min(max(self._done / self._total, 0.0), 1.0)
        counted = isinstance(self._total, int)
        count = f"{self._done}/{self._total}" if counted else f"{fraction:4.0%}"
        left = f"{seconds / fraction * (1 - fraction):.0f} s left" if counted and fraction else ""
        before = f"{self._title} " if self._title else ""
        behind = "  ".join(filter(None, [count, left, self._note]))
        room = width - len(before) - BAR_WIDTH - len("[] ")
        if room < len(count):
            return f"{before}{count}"[:width]
        return f"{before}{_bar(fraction)} {behind[:room]}"

    def _write(self, line: str) -> None:
        if self.visible:
            self._stream.write(f"\r\x1b[K{line}")
            self._stream.flush()


def _bar(fraction: float) -> str:
    filled = int(BAR_WIDTH * fraction)
    return f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}]"

"""Shows how far the build of an engine is: a bar on a terminal, else one line a phase in the log."""

from __future__ import annotations

import logging
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TextIO, TypeVar

from hami_trt._tensorrt import Library

_log = logging.getLogger("hami.trt")
T = TypeVar("T")
WIDTH = 30
PAUSE = 0.1  # seconds between two drawings


class Progress:
    """What is done of a tree of phases: a phase counts in its parent as the step that it is in.

    Called by threads of the library, any number of them. `stopped` asks the library to give up at its next step.
    """

    def __init__(self, draw: Callable[[str, float], None]) -> None:
        self._draw = draw
        self._lock = threading.Lock()  # guards what follows
        self._phases: dict[str, tuple[str | None, int, int]] = {}  # name: parent, steps, steps that are done
        self._most = 0.0
        self.stopped = threading.Event()

    def watch(self, build: Callable[[], T]) -> T:
        """Run a build on a thread of its own: Ctrl-C is then heard here, at once, and does not end in the library."""
        with ThreadPoolExecutor(1) as pool:
            try:
                return pool.submit(build).result()
            except KeyboardInterrupt:
                self.stopped.set()
                raise

    def start(self, name: str, parent: str | None, steps: int) -> None:
        with self._lock:
            self._phases[name] = (parent, max(steps, 1), 0)
            self._tell(name)

    def step(self, name: str, step: int) -> None:
        with self._lock:
            parent, steps, _ = self._phases.get(name, (None, 1, 0))
            self._phases[name] = (parent, steps, min(step + 1, steps))
            self._tell(name)

    def finish(self, name: str) -> None:
        with self._lock:
            parent, _, _ = self._phases.pop(name, (None, 1, 0))
            self._tell(parent or name)

    def _tell(self, name: str) -> None:
        self._most = max(self._most, self._fraction())  # a library that starts phases anew does not go back
        self._draw(name, self._most)

    def _fraction(self) -> float:
        """What is done of the root, with what is done of the step that it is in, and so on down."""
        done, share, name = 0.0, 1.0, None
        for _ in self._phases:
            below = [(child, steps, at) for child, (parent, steps, at) in self._phases.items() if parent == name]
            if not below:
                break
            name, steps, at = below[-1]
            done += share * at / steps
            share /= steps
            if at == steps:
                break
        return min(done, 1.0)


@contextmanager
def shown(title: str, library: Library, config: Any) -> Iterator[Progress]:
    """Show the progress of a build with this configuration."""
    bar = _Bar(title, sys.stderr) if sys.stderr is not None and sys.stderr.isatty() else None
    progress = Progress(bar.draw if bar else _Log(title).draw)
    monitor = library.progress_monitor(progress)
    if monitor is not None:
        config.progress_monitor = monitor
    try:
        yield progress
    finally:
        if bar:
            bar.clear()


class _Bar:
    def __init__(self, title: str, stream: TextIO) -> None:
        self._title = title
        self._stream = stream
        self._drawn = float("-inf")

    def draw(self, phase: str, done: float) -> None:
        now = time.monotonic()
        if now - self._drawn < PAUSE:
            return
        self._drawn = now
        filled = int(WIDTH * done)
        line = f"{self._title} [{'#' * filled}{'.' * (WIDTH - filled)}] {done:4.0%}  {phase}"
        self._write(line[: shutil.get_terminal_size().columns - 1])

    def clear(self) -> None:
        self._write("")

    def _write(self, line: str) -> None:
        with suppress(OSError):  # a terminal that has gone is no reason to give a build up
            self._stream.write(f"\r\x1b[K{line}")
            self._stream.flush()


class _Log:
    def __init__(self, title: str) -> None:
        self._title = title
        self._tenth = 0

    def draw(self, phase: str, done: float) -> None:
        if int(done * 10) > self._tenth:
            self._tenth = int(done * 10)
            _log.info("%s: %d %%, %s", self._title, self._tenth * 10, phase)

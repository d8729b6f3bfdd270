"""Shows the progress of a build: a bar of hami.progress on a terminal, otherwise a line in the log for each tenth.

The library reports a tree of phases. Each phase has a number of steps, and a child phase runs during one step of its
parent.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from hami.progress import Progress

from hami_trt._tensorrt import Library

_log = logging.getLogger("hami.trt")
T = TypeVar("T")


class _Phase(NamedTuple):
    parent: str | None
    steps: int
    done: int  # completed steps


class BuildProgress:
    """Computes the completed fraction of a tree of phases, and passes it to `draw` with the name of a phase.

    Threads of the library call `start`, `step` and `finish`. Setting `cancelled` stops the build at its next step.
    """

    def __init__(self, draw: Callable[[float, str], None]) -> None:
        self._draw = draw
        self._lock = threading.Lock()  # guards _phases and _highest
        self._phases: dict[str, _Phase] = {}
        self._highest = 0.0
        self.cancelled = threading.Event()

    def run(self, build: Callable[[], T]) -> T:
        """Run a build on another thread, so that Ctrl-C interrupts this thread at once and not inside the library."""
        with ThreadPoolExecutor(1) as pool:
            try:
                return pool.submit(build).result()
            except KeyboardInterrupt:
                self.cancelled.set()
                raise

    def start(self, name: str, parent: str | None, steps: int) -> None:
        with self._lock:
            self._phases[name] = _Phase(parent, max(steps, 1), 0)
            self._report(name)

    def step(self, name: str, step: int) -> None:
        with self._lock:
            phase = self._phases.get(name, _Phase(None, 1, 0))
            self._phases[name] = phase._replace(done=min(step + 1, phase.steps))
            self._report(name)

    def finish(self, name: str) -> None:
        with self._lock:
            phase = self._phases.pop(name, _Phase(None, 1, 0))
            self._report(phase.parent or name)

    def _report(self, name: str) -> None:
        self._highest = max(self._highest, self._fraction())  # a phase that starts again must not move the bar back
        self._draw(self._highest, name)

    def _fraction(self) -> float:
        """Add up the completed steps from the root phase down to the innermost running phase."""
        fraction, share, name = 0.0, 1.0, None
        for _ in self._phases:
            children = [(child, phase) for child, phase in self._phases.items() if phase.parent == name]
            if not children:
                break
            name, phase = children[-1]
            fraction += share * phase.done / phase.steps
            share /= phase.steps
            if phase.done == phase.steps:
                break
        return min(fraction, 1.0)


@contextmanager
def show_progress(title: str, library: Library, config: Any) -> Iterator[BuildProgress]:
    """Show the progress of the build that uses this builder configuration."""
    with Progress(1.0, title) as bar:
        progress = BuildProgress(bar.update if bar.visible else _Log(title).draw)
        monitor = _monitor(library, progress)
        if monitor is not None:
            config.progress_monitor = monitor
        yield progress


def _monitor(library: Library, progress: BuildProgress) -> Any:
    """Return a monitor that reports a build to `progress`; None if the library does not support monitors."""
    base: Any = getattr(library.module, "IProgressMonitor", None)
    if base is None:
        return None

    class Monitor(base):  # type: ignore[misc]
        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            progress.start(phase_name, parent_phase, num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            progress.step(phase_name, step)
            return not progress.cancelled.is_set()

        def phase_finish(self, phase_name: str) -> None:
            progress.finish(phase_name)

    return Monitor()


class _Log:
    def __init__(self, title: str) -> None:
        self._title = title
        self._tenth = 0

    def draw(self, fraction: float, phase: str) -> None:
        if int(fraction * 10) > self._tenth:
            self._tenth = int(fraction * 10)
            _log.info("%s: %d %%, %s", self._title, self._tenth * 10, phase)

"""Delivery: results to several sinks at once, each on a thread of its own, so that none holds up the pipe.

>>> import numpy as np
>>> from hami_vision.delivery import Delivery
>>> from hami_vision.sources import Frame
>>> seen = []
>>> with Delivery({"list": lambda frame, result: seen.append((frame.index, result))}) as delivery:
...     delivery.send(Frame("camera", 0, np.zeros((4, 4, 3), np.uint8), 0.0, None), "nothing found")
>>> seen
[(0, 'nothing found')]
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import hami

from hami_vision.sources import LONGEST_WAIT, Frame

Sink = Callable[[Frame, Any], None]
_CAPACITY = 8  # results that wait for a sink; a frame of 1080p has 6 MB
_CLOSE_TIMEOUT = 10.0  # seconds for the results that wait; a sink that hangs is left behind


@dataclass(frozen=True)
class SinkState:
    """What a sink has done: results taken, dropped because it was slow, and failed; the reason of the last failure."""

    taken: int = 0
    dropped: int = 0
    failed: int = 0
    reason: str = ""


class Delivery:
    """Send each result to every sink: a function of the frame and its result. One with `close` is closed at the end.

    A sink that raises has the failure counted, and gets the next result. For one that is slow, the oldest results that
    wait are dropped and counted; `lossless` sinks, such as files, hold up the sender instead, for up to `timeout`
    seconds without progress. After that they lose results too, until they take one again.

    Args:
        sinks: By name.
        lossless: Names of sinks that get every result.
        timeout: Seconds; infinity: as long as it takes.

    Raises:
        ValueError: A name is not that of a sink, or the timeout is not a number from 0 on.
    """

    def __init__(self, sinks: Mapping[str, Sink], *, lossless: tuple[str, ...] = (), timeout: float = 5.0) -> None:
        unknown = set(lossless) - set(sinks)
        if unknown:
            raise ValueError(f"lossless names sinks that are not given: {', '.join(sorted(unknown))}")
        if not timeout >= 0:
            raise ValueError(f"timeout must be at least 0, got {timeout}")
        timeout = min(timeout, LONGEST_WAIT)
        self._lanes: dict[str, _Lane] = {}
        try:
            for name, sink in sinks.items():
                self._lanes[name] = _Lane(name, sink, timeout if name in lossless else 0.0)
        except BaseException:  # no thread is left
            self.close()
            raise

    def send(self, frame: Frame, result: Any) -> None:
        """Hand a result over. It returns at once, except for lossless sinks that are behind."""
        for lane in self._lanes.values():
            lane.put(partial(lane.take, frame, result))

    def call(self, name: str, function: Callable[[], object]) -> None:
        """Call a function on the thread of a sink, after the results that were sent before."""
        self._lanes[name].put(function)

    def states(self) -> dict[str, SinkState]:
        """Return what each sink has done."""
        return {name: lane.state for name, lane in self._lanes.items()}

    def close(self) -> None:
        """Deliver what waits, and close the sinks; returns after ten seconds, also where a sink hangs.

        Called by a sink, it returns at once: two sinks would wait for each other.
        """
        for lane in self._lanes.values():
            lane.end()
        if any(lane.is_current for lane in self._lanes.values()):
            return
        deadline = time.monotonic() + _CLOSE_TIMEOUT
        for lane in self._lanes.values():
            lane.join(max(0.0, deadline - time.monotonic()))

    def __enter__(self) -> Delivery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Lane:
    """One sink, its thread, and the results that wait for it."""

    def __init__(self, name: str, sink: Sink, timeout: float) -> None:
        self.state = SinkState()
        self._sink, self._timeout = sink, timeout
        self._waiting: deque[Callable[[], object]] = deque()
        self._changed = threading.Condition()
        self._is_stuck = self._has_ended = self._is_left = False
        self._thread = threading.Thread(target=self._run, name=f"sink {name}", daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller is on the thread of this sink."""
        return self._thread is threading.current_thread()

    def take(self, frame: Frame, result: Any) -> None:
        self._sink(frame, result)
        with self._changed:
            self.state = replace(self.state, taken=self.state.taken + 1)

    def put(self, work: Callable[[], object]) -> None:
        with self._changed:
            if self._timeout and not self._is_stuck:
                self._is_stuck = not self._changed.wait_for(
                    lambda: self._has_ended or len(self._waiting) < _CAPACITY, self._timeout
                )
            if self._has_ended:
                raise ValueError("the delivery is closed")
            if len(self._waiting) >= _CAPACITY:
                self._waiting.popleft()
                reason = f"took no result for {self._timeout:g} s" if self._timeout else self.state.reason
                self.state = replace(self.state, dropped=self.state.dropped + 1, reason=reason)
            self._waiting.append(work)
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)
        with self._changed:
            is_left, self._is_left = self._is_left, self._thread.is_alive()
        if self._is_left and not is_left:  # several callers may close
            self._note_failure("still busy when it was closed")

    def _run(self) -> None:
        while (work := self._next()) is not None:
            self._try(work)
        self._try(getattr(self._sink, "close", lambda: None))

    def _try(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # of any code of the user
            self._note_failure(hami.observe.redact(f"{type(error).__name__}: {error}"))

    def _next(self) -> Callable[[], object] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._has_ended)
            if not self._waiting:
                return None
            self._is_stuck = False
            work = self._waiting.popleft()
            self._changed.notify_all()
            return work

    def _note_failure(self, reason: str) -> None:
        with self._changed:
            self.state = replace(self.state, failed=self.state.failed + 1, reason=reason)

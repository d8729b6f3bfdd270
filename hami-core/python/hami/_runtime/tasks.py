"""Requests of tasks in an asyncio loop."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque

from hami import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Outcomes:
    """Completed requests for the tasks of one loop: any number of them needs one wake-up.

    The core calls `put` with each answer, after it brought its outcome there, and `wake` when it has told all.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = weakref.ref(loop)  # outcomes are kept by their loop
        self._finished: deque[_core.Awaitable] = deque()
        self._woken = False
        self.put = self._finished.append

    def wake(self) -> None:
        if self._woken:
            return
        self._woken = True
        loop = self.loop()
        try:
            if loop is not None:
                loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # the loop was closed, and with it went who waited
            pass
        except BaseException:  # of a signal's handler: it is woken once more
            self._woken = False
            raise

    def _deliver(self) -> None:
        self._woken = False  # before reading: later completions wake the loop again
        finished = self._finished
        if len(finished) > 1 and getattr(self.loop(), "_nest_patched", False):
            # With nest_asyncio a task may run this loop recursively until a later outcome arrives, which this delivers.
            self.wake()
        try:
            for _ in range(len(finished)):  # not while there are any: what a task does now may bring about the next
                if finished:  # else they were brought inside
                    finished.popleft().settle()
        except BaseException:  # a task that stops the loop; the loop may continue
            self.wake()
            raise


_outcomes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Outcomes] = weakref.WeakKeyDictionary()
_latest: _Outcomes | None = None  # of the loop that asked last, which is the only one as a rule


def _outcomes_of(loop: asyncio.AbstractEventLoop) -> _Outcomes:
    global _latest
    found = _outcomes.get(loop)
    if found is None:
        _forget_closed_loops()
        found = _outcomes[loop] = _Outcomes(loop)
    _latest = found
    return found


def _forget_closed_loops() -> None:
    """Drop loops that were closed before they took their outcomes: outcomes and loop keep each other alive."""
    for kept in _outcomes.keyrefs():
        loop = kept()
        if loop is not None and loop.is_closed():
            _outcomes.pop(loop, None)


def start(core: _core.Pipe, request: dict[str, Any], timeout: float | None) -> _core.Awaitable:
    """Start one request for the current task, which awaits the answer."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError as error:
        raise RuntimeError(
            "acall is for tasks of an asyncio loop, and none runs on this thread; call the pipe itself, which waits, "
            "under trio on a thread: await trio.to_thread.run_sync(pipe, request)"
        ) from error
    outcomes = _latest
    if outcomes is None or outcomes.loop() is not loop:
        outcomes = _outcomes_of(loop)
    return core.submit_from_loop(request, timeout, outcomes, loop)

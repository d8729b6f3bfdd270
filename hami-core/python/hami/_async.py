"""Requests of tasks in an asyncio loop."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Outcomes:
    """What other threads have finished for the tasks of one loop: however much that is, one wake-up brings it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)  # outcomes are kept by their loop
        self._finished: deque[tuple[asyncio.Future[None], BaseException | None]] = deque()
        self._woken = False

    def put(self, future: asyncio.Future[None], error: BaseException | None) -> None:
        """Have the future done in its loop; from any thread."""
        self._finished.append((future, error))
        if self._woken:
            return
        self._woken = True
        loop = self._loop()
        try:
            if loop is not None:
                loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # the loop was closed, and with it went who waited
            pass

    def _deliver(self) -> None:
        self._woken = False  # before looking: who comes from now on wakes the loop again
        while self._finished:
            _settle(*self._finished.popleft())


def _settle(future: asyncio.Future[None], error: BaseException | None) -> None:
    if future.done():  # its task was cancelled
        return
    if error is None:
        future.set_result(None)
    elif isinstance(error, StopIteration):  # which means something else to a coroutine
        reason = RuntimeError("a backend raised StopIteration")
        reason.__cause__ = error
        future.set_exception(reason)
    else:
        future.set_exception(error)


_outcomes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Outcomes] = weakref.WeakKeyDictionary()


def _start(
    core: Any, request: dict[str, Any], timeout: float | None, loop: asyncio.AbstractEventLoop
) -> tuple[Any, asyncio.Future[None]]:
    outcomes = _outcomes.get(loop)
    if outcomes is None:
        outcomes = _outcomes[loop] = _Outcomes(loop)
    future: asyncio.Future[None] = loop.create_future()
    loops_thread = threading.get_ident()

    def done(error: BaseException | None) -> None:
        if threading.get_ident() == loops_thread:  # it ran at once
            _settle(future, error)
        else:
            outcomes.put(future, error)

    return core.submit(request, timeout, done, False), future


async def acall(core: Any, request: dict[str, Any], timeout: float | None) -> dict[str, Any]:
    """Run one request of the core's pipe for the current task."""
    call, future = _start(core, request, timeout, asyncio.get_running_loop())
    try:
        await future
    finally:
        if not future.done():
            future.cancel()  # the coroutine was closed: nobody will ask for an outcome
        if future.cancelled():
            call.cancel()
        del call, future  # both hold the error, whose traceback holds this frame; and no gc sees into the first
    return request

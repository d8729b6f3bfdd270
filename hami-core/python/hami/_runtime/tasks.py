"""Starts requests of asyncio tasks and delivers their completions to the loop, and awaits a hami.Event there."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque

from hami import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hami._core import Event


class _CompletionQueue:
    """The completed requests of the tasks of one loop; any number of them needs one wake-up of the loop.

    For each batch of completions, the core calls `put` with each awaitable, which holds its outcome by then, and then
    `wake` once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = weakref.ref(loop)  # weak: `_queues` keeps the queue as long as its loop exists
        self._completed: deque[_core.Awaitable] = deque()
        self._woken = False
        self.put = self._completed.append

    def wake(self) -> None:
        if self._woken:
            return
        self._woken = True
        loop = self.loop()
        try:
            if loop is not None:
                loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # the loop is closed, so its tasks are gone
            pass
        except BaseException:  # raised by a signal handler; the core calls wake again
            self._woken = False
            raise

    def _deliver(self) -> None:
        self._woken = False  # before reading the queue: later completions wake the loop again
        completed = self._completed
        if len(completed) > 1 and getattr(self.loop(), "_nest_patched", False):
            # With nest_asyncio, a task may run this loop recursively until a later request completes. The inner loop
            # needs a wake-up of its own to deliver that completion.
            self.wake()
        try:
            for _ in range(len(completed)):  # not "while": a task may complete further requests endlessly
                if completed:  # otherwise a recursive run of the loop has delivered it
                    completed.popleft().settle()
        except BaseException:  # a task stopped the loop, which may be started again
            self.wake()
            raise


_queues: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _CompletionQueue] = weakref.WeakKeyDictionary()
_latest: _CompletionQueue | None = None  # of the loop that started the latest request; usually the only loop


def _queue_of(loop: asyncio.AbstractEventLoop) -> _CompletionQueue:
    global _latest
    found = _queues.get(loop)
    if found is None:
        _forget_closed_loops()
        found = _queues[loop] = _CompletionQueue(loop)
    _latest = found
    return found


def _forget_closed_loops() -> None:
    """Drop closed loops with undelivered completions: queue and loop keep each other alive."""
    for kept in _queues.keyrefs():
        loop = kept()
        if loop is not None and loop.is_closed():
            _queues.pop(loop, None)


def start(
    core: _core.Pipe, request: dict[str, Any], timeout: float | None, priority: int | None = None
) -> _core.Awaitable:
    """Start one request for the current task, and return the awaitable of its completion."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError as error:
        raise RuntimeError(
            "acall needs a running asyncio loop, and this thread has none; call pipe(request), which waits, "
            "or under trio: await trio.to_thread.run_sync(pipe, request)"
        ) from error
    queue = _latest
    if queue is None or queue.loop() is not loop:
        queue = _queue_of(loop)
    return core.submit_from_loop(request, timeout, queue, loop, priority)


async def outcome(event: Event) -> Any:
    """Wait until the event is complete; return its value or raise its exception."""
    if not event.done():
        await _completion(event)
    error = event.exception()
    if error is not None:
        raise error
    return event.value()


async def _completion(event: Event) -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def wake_task() -> None:
        if not future.done():  # the task was not cancelled meanwhile
            future.set_result(None)

    def on_completion(_: Event) -> None:
        try:
            loop.call_soon_threadsafe(wake_task)
        except RuntimeError:  # the loop is closed, so the task is gone
            if not loop.is_closed():
                raise

    number = event._watch(on_completion)
    try:
        await future
    finally:
        event._unwatch(number)

"""Ticket: the handle of one started task."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

from hami_accel.slots import Slot
from hami_accel.task import Task

if TYPE_CHECKING:
    from hami_accel.model import AccelModel


class Ticket:
    """A started task. Pass it to `AccelModel.wait` once, or await it once.

    Attributes:
        slot: number of the slot.
        priority: of the task.
    """

    __slots__ = ("_model", "_slot", "_task", "_waited")

    def __init__(self, model: AccelModel, slot: Slot, task: Task) -> None:
        self._model, self._slot, self._task = model, slot, task
        self._waited = False

    @property
    def slot(self) -> int:
        return self._slot.index

    @property
    def priority(self) -> int:
        return self._task.priority

    def done(self) -> bool:
        """Return whether the task has ended. Its slot is busy until a caller waits for it."""
        return self._task.done

    @property
    def lost(self) -> bool:
        """Whether the device did not answer. The slot cannot be used again, with any error of the task."""
        return self._task.unanswered

    def cancel(self) -> bool:
        """Cancel the task: `wait` raises CancelledError. Return False if it has ended already.

        A task that runs ends at the next border between function-calls, or at once if the device can abort.
        """
        return self._model._engine.cancel(self._task)

    def wait(self, timeout: float | None = None) -> Any:
        """Like `AccelModel.wait(ticket, timeout)`."""
        return self._model.wait(self, timeout)

    def add_done_callback(self, callback: Callable[[Ticket], object]) -> None:
        """Call `callback(ticket)` when the task has ended, on the thread that ends it; now if it has ended."""
        self._model._engine.add_callback(self._task, lambda _: callback(self))

    def __await__(self) -> Generator[Any, None, Any]:
        return self._wait_async(asyncio.get_running_loop()).__await__()

    async def _wait_async(self, loop: asyncio.AbstractEventLoop) -> Any:
        model, engine, task = self._model, self._model._engine, self._task
        model._slots.claim(self, model)
        timer = None
        try:
            if model.device.clock is not None:  # virtual time passes while this thread waits
                engine.wait(task, None)
            ended: asyncio.Future[None] = loop.create_future()

            def tell(_: Task) -> None:
                with contextlib.suppress(RuntimeError):  # the loop was closed
                    loop.call_soon_threadsafe(_complete, ended)

            engine.add_callback(task, tell)
            if task.deadline is not None:
                timer = loop.call_later(task.deadline - engine.now(), engine.expire, task)
            await ended
        except BaseException:  # the task is cancelled, or its coroutine is closed
            self._abandon()
            raise
        finally:
            if timer is not None:
                timer.cancel()
        return model._slots.take(self)

    def _abandon(self) -> None:
        """Cancel the task, for which no caller waits any more, and free its slot when it has ended."""
        engine = self._model._engine
        engine.cancel(self._task)
        engine.add_callback(self._task, lambda _: self._discard())  # the buffers are in use until then

    def _discard(self) -> None:
        with contextlib.suppress(Exception, CancelledError):
            self._model._slots.take(self)

    def __repr__(self) -> str:
        state = "waited" if self._waited else self._task.state.value
        return f"<Ticket slot {self.slot}, priority {self.priority}, {state}>"


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():  # it was cancelled
        future.set_result(None)

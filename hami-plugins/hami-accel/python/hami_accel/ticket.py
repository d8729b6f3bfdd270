"""Ticket: the handle of one started task."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
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

    def cancel(self) -> bool:
        """Cancel the task: `wait` raises CancelledError. Return False if it has ended already.

        A task that runs ends at the next border between function-calls, or at once if the device can abort.
        """
        return self._model._engine.cancel(self._task)

    def wait(self, timeout: float | None = None) -> Any:
        """Like `AccelModel.wait(ticket, timeout)`."""
        return self._model.wait(self, timeout)

    def __await__(self) -> Generator[Any, None, Any]:
        return self._model._wait_async(self, asyncio.get_running_loop()).__await__()

    def __repr__(self) -> str:
        state = "waited" if self._waited else self._task.state.value
        return f"<Ticket slot {self.slot}, priority {self.priority}, {state}>"

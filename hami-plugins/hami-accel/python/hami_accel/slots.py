"""Slot: the buffers of one task and the state that protects them. Ticket: the handle of a task in a slot.

    IDLE ──occupy──► FILLING ──run──► RUNNING ──claim──► WAITED ──take──► TAKING ──► IDLE
                        │                ▲                 │
      IDLE ◄─────free───┘                └────unclaim──────┘
    WAITED ──the device never answered──► LOST (final): it may still use the buffers

The lock of the table guards every transition, so that of two threads that start or wait for the same slot, one raises.
Closing the table ends FILLING and TAKING, in which a thread uses the buffers.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import operator
import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any, Protocol

from hami_accel.device import Buffers, Device
from hami_accel.engine import Engine
from hami_accel.errors import ModelClosed, SlotError
from hami_accel.task import Task


class SlotState(enum.Enum):
    IDLE = "idle"
    FILLING = "filling"  # a caller writes or binds its buffers
    RUNNING = "running"
    WAITED = "waited"
    TAKING = "taking"  # a caller copies the outputs
    LOST = "lost"


IDLE, FILLING, RUNNING, WAITED, TAKING, LOST = SlotState  # without the look-up in the class, which every call repeats


class Slot:
    """One task slot of a model. The lock of its table guards `state` and `ticket`."""

    def __init__(self, index: int, buffers: Buffers, cores: frozenset[int]) -> None:
        self.index = index
        self.buffers = buffers
        self.cores = cores  # that its tasks may use
        self.priority = 0  # of tasks that state none
        self.ticket: Ticket | None = None  # of the task that runs
        self.state = IDLE


class _Model(Protocol):
    """What a ticket uses of an AccelModel."""

    device: Device
    _engine: Engine
    _slots: SlotTable

    @property
    def name(self) -> str: ...

    def wait(self, ticket: Any, timeout: float | None = ...) -> Any: ...


class Ticket:
    """A started task. Pass it to `AccelModel.wait` once, or await it once.

    Attributes:
        slot: number of the slot.
        priority: of the task.
    """

    __slots__ = ("_model", "_slot", "_task", "_waited")

    def __init__(self, model: _Model, slot: Slot, task: Task) -> None:
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
        self._model._slots.require_process()
        return self._model._engine.cancel(self._task)

    def wait(self, timeout: float | None = None) -> Any:
        """Like `AccelModel.wait(ticket, timeout)`."""
        return self._model.wait(self, timeout)

    def add_done_callback(self, callback: Callable[[Ticket], object]) -> None:
        """Call `callback(ticket)` when the task has ended, on the thread that ends it; now if it has ended.

        Raises:
            TypeError: `callback` cannot be called.
        """
        if not callable(callback):
            raise TypeError(f"{self._model.name}: a done-callback is called, got {type(callback).__name__}")
        self._model._slots.require_process()
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


class SlotTable:
    """The slots of a model, occupied by one task and claimed by one waiting caller each."""

    def __init__(self, name: str, slots: Sequence[Slot]) -> None:
        self.name = name  # of the model, for messages
        self.closed = False
        self._slots = slots
        self._process = os.getpid()
        self._next = 0  # the slot after that of the last start
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)  # a slot of a closed table has changed

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._slots)

    def __len__(self) -> int:
        return len(self._slots)

    def require_process(self) -> None:
        """Raise ModelClosed in a forked child: it has neither the threads nor the device of its parent."""
        if os.getpid() != self._process:
            raise ModelClosed(
                f"{self.name}: the model is of process {self._process}, which has forked this one; create another "
                "AccelModel after the fork"
            )

    def get(self, number: int) -> Slot:
        """Return a slot by its number."""
        try:
            index = operator.index(number)
        except TypeError:
            raise SlotError(f"{self.name}: a slot is a number, got {type(number).__name__}") from None
        if not 0 <= index < len(self._slots):
            raise SlotError(f"{self.name}: slot must be 0 to {len(self._slots) - 1}, got {number}")
        return self._slots[index]

    def occupy(self, number: int | None) -> Slot:
        """Make an idle slot FILLING and return it; None: any idle one, those with bound buffers last."""
        target = None if number is None else self.get(number)
        self.require_process()
        with self._lock:
            if self.closed:
                raise self._is_closed()
            if target is None:
                target = self._any_idle()
            elif target.state is not IDLE:
                todo = "use another slot" if target.state is LOST else "wait for its task, or use another slot"
                raise SlotError(f"{self.name}: slot {number} is {target.state.value}; {todo}")
            target.state = FILLING
        return target

    def _any_idle(self) -> Slot:
        count, first = len(self._slots), self._next
        for bound in (False, True):
            for offset in range(count):
                target = self._slots[(first + offset) % count]
                if target.state is IDLE and bool(target.buffers.bound) is bound:
                    self._next = (target.index + 1) % count
                    return target
        lost = sum(slot.state is LOST for slot in self._slots)
        if lost == count:
            raise SlotError(
                f"{self.name}: the device has not answered in any of {count} slots; create another AccelModel"
            )
        also = f", and {lost} are lost" if lost else ""
        raise SlotError(
            f"{self.name}: none of {count} slots is idle{also}; wait for a task, or load with a larger n_task"
        )

    def free(self, slot: Slot) -> None:
        """Make a FILLING slot IDLE again."""
        with self._lock:
            slot.state = IDLE
            self._tell()

    def run(self, slot: Slot, ticket: Ticket) -> None:
        """Make a FILLING slot RUNNING."""
        with self._lock:
            if self.closed:
                raise self._is_closed()
            slot.state, slot.ticket = RUNNING, ticket

    def running(self, slot: Slot) -> Ticket:
        """Return the ticket of the task of a slot."""
        ticket = slot.ticket
        if ticket is None:
            todo = "use another slot" if slot.state is LOST else "start a task before you wait for one"
            raise SlotError(f"{self.name}: slot {slot.index} is {slot.state.value}; {todo}")
        return ticket

    def claim(self, ticket: Ticket, model: object) -> None:
        """Make the slot of a task WAITED, which one caller per task can."""
        slot = ticket._slot
        if ticket._model is not model:
            raise SlotError(f"{self.name}: the ticket is of the model {ticket._model.name}; wait there")
        self.require_process()
        with self._lock:
            if ticket._waited or slot.ticket is not ticket or slot.state is not RUNNING:
                raise SlotError(f"{self.name}: another caller waits or has waited for this task of slot {ticket.slot}")
            slot.state = WAITED

    def unclaim(self, ticket: Ticket) -> None:
        """The caller that has claimed a task leaves, and another one may wait for it."""
        with self._lock:
            ticket._slot.state = RUNNING

    def take(self, ticket: Ticket) -> Any:
        """Return the outputs of a claimed task that is done, or raise its error, and free the slot."""
        slot, task = ticket._slot, ticket._task
        with self._lock:
            if slot.ticket is not ticket:
                raise SlotError(f"{self.name}: another caller has waited for this task of slot {ticket.slot}")
            ticket._waited = True
            error = task.error
            if error is None and self.closed:
                error = self._is_closed()
            if error is not None:
                self._leave(slot, LOST if task.unanswered else IDLE)
                raise error
            slot.state = TAKING
        try:
            outputs = slot.buffers.take_outputs()
            return outputs if len(outputs) > 1 else next(iter(outputs.values()))
        finally:
            with self._lock:
                self._leave(slot, IDLE)

    def _leave(self, slot: Slot, state: SlotState) -> None:
        slot.state, slot.ticket = state, None
        self._tell()

    def _tell(self) -> None:
        if self.closed:
            self._changed.notify_all()

    def close(self) -> list[Task] | None:
        """Let no caller occupy a slot any more. Return the tasks that have not ended; None: it is closed already.

        A forked child closes nothing: its parent uses the model.
        """
        if os.getpid() != self._process:
            return None
        with self._lock:
            if self.closed:
                return None
            self.closed = True
            return [slot.ticket._task for slot in self._slots if slot.ticket is not None and not slot.ticket.done()]

    def wait_unused(self, timeout: float) -> bool:
        """Wait until no caller uses buffers; return whether they can be freed: the device has answered for all."""
        with self._lock:
            unused = self._changed.wait_for(
                lambda: all(slot.state not in (FILLING, TAKING) for slot in self._slots), max(timeout, 0.0)
            )
            return unused and not any(
                slot.state is LOST or (slot.ticket is not None and slot.ticket._task.unanswered) for slot in self._slots
            )

    def _is_closed(self) -> ModelClosed:
        return ModelClosed(f"{self.name}: the model is closed; create another AccelModel")


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():  # it was cancelled
        future.set_result(None)

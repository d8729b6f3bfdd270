"""Slot: the buffers of one task and the state that protects them.

    IDLE ──start──► RUNNING ──wait──► WAITED ──outputs taken──► IDLE
                       ▲                │
                       └────time-out────┘
    RUNNING or WAITED ──the device never answered──► LOST (final)

Every transition is a compare-and-swap, so that of two threads that start or wait for the same slot, one raises.
"""

from __future__ import annotations

import enum
import operator
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hami_accel.device import Buffers
from hami_accel.errors import SlotError, SlotLost

if TYPE_CHECKING:
    from hami_accel.ticket import Ticket


class SlotState(enum.Enum):
    IDLE = "idle"
    RUNNING = "running"
    WAITED = "waited"
    LOST = "lost"


IDLE, RUNNING, WAITED, LOST = SlotState  # without the look-up in the class, which every call would repeat


class Slot:
    """One task slot of a model."""

    def __init__(self, index: int, buffers: Buffers, cores: frozenset[int]) -> None:
        self.index = index
        self.buffers = buffers
        self.cores = cores  # that its tasks may use
        self.priority = 0  # of tasks that state none
        self.ticket: Any = None  # of the task that runs
        self.state = IDLE
        self._lock = threading.Lock()

    def swap(self, expected: SlotState, new: SlotState) -> bool:
        """Enter `new` if the state is `expected`; return whether it was."""
        with self._lock:
            if self.state is not expected:
                return False
            self.state = new
            return True


class SlotTable:
    """The slots of a model, occupied by one task and claimed by one waiting caller each."""

    def __init__(self, name: str, slots: Sequence[Slot]) -> None:
        self.name = name  # of the model, for messages
        self._slots = slots
        self._next = 0  # the slot after that of the last start

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._slots)

    def __len__(self) -> int:
        return len(self._slots)

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
        """Make a slot RUNNING and return it; None: any idle one, those with bound buffers last."""
        if number is not None:
            target = self.get(number)
            if not target.swap(IDLE, RUNNING):
                raise SlotError(
                    f"{self.name}: slot {number} is {target.state.value}; wait for its task, or use another slot"
                )
            return target
        count, first = len(self._slots), self._next
        for bound in (False, True):
            for offset in range(count):
                target = self._slots[(first + offset) % count]
                if bool(target.buffers.bound) is bound and target.state is IDLE and target.swap(IDLE, RUNNING):
                    self._next = (target.index + 1) % count
                    return target
        raise SlotError(f"{self.name}: none of {count} slots is idle; wait for a task, or load with a larger n_task")

    def running(self, slot: Slot) -> Ticket:
        """Return the ticket of the task of a slot."""
        ticket: Ticket | None = slot.ticket
        if slot.state is IDLE or ticket is None:
            raise SlotError(f"{self.name}: slot {slot.index} is idle; start a task before you wait for one")
        return ticket

    def claim(self, ticket: Ticket, model: object) -> None:
        """Make the slot of a task WAITED, which one caller per task can."""
        if ticket._model is not model:
            raise SlotError(f"{self.name}: the ticket is of the model {ticket._model.name}; wait there")
        if ticket._waited or not ticket._slot.swap(RUNNING, WAITED):
            raise SlotError(f"{self.name}: another caller waits or has waited for this task of slot {ticket.slot}")

    def take(self, ticket: Ticket) -> Any:
        """Return the outputs of a claimed task that is done, or raise its error, and free the slot."""
        slot, error = ticket._slot, ticket._task.error
        ticket._waited = True
        try:
            if error is not None:
                raise error
            outputs = slot.buffers.take_outputs()
            return outputs if len(outputs) > 1 else next(iter(outputs.values()))
        finally:
            slot.ticket = None
            slot.swap(WAITED, LOST if isinstance(error, SlotLost) else IDLE)

"""Slot: the buffers of one task and the state that protects them.

    IDLE ──start──► RUNNING ──wait──► WAITED ──outputs taken──► IDLE
                       ▲                │
                       └────time-out────┘
    RUNNING or WAITED ──the device never answered──► LOST (final)

Every transition is a compare-and-swap, so that of two threads that start or wait for the same slot, one raises.
"""

from __future__ import annotations

import enum
import threading
from typing import Any

from hami_accel.device import Buffers


class SlotState(enum.Enum):
    IDLE = "idle"
    RUNNING = "running"
    WAITED = "waited"
    LOST = "lost"


class Slot:
    """One task slot of a model."""

    def __init__(self, index: int, buffers: Buffers, cores: frozenset[int]) -> None:
        self.index = index
        self.buffers = buffers
        self.cores = cores  # that its tasks may use
        self.priority = 0  # of tasks that state none
        self.ticket: Any = None  # of the task that runs
        self.state = SlotState.IDLE
        self._lock = threading.Lock()

    def swap(self, expected: SlotState, new: SlotState) -> bool:
        """Enter `new` if the state is `expected`; return whether it was."""
        with self._lock:
            if self.state is not expected:
                return False
            self.state = new
            return True

"""Task: one run of a model, as the scheduler and the engines see it.

    NEW ──► READY ──► RUNNING ──► DONE
                        │  ▲
                        ▼  │
                      SUSPENDED

A task that is removed before it runs goes from NEW, READY or SUSPENDED to DONE. DONE is final and entered once.
"""

from __future__ import annotations

import enum
import logging
import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hami_accel.device import Buffers, Call, DeviceModel

if TYPE_CHECKING:
    from typing import TypeGuard

_log = logging.getLogger("hami_accel")

ORDINARY, HIGH, URGENT, AGED = range(4)  # levels; AGED is the rank of an ordinary or high task that waited too long
LEVELS = URGENT + 1
HIGH_PRIORITY, URGENT_PRIORITY = 254, 255


class State(enum.Enum):
    NEW = "new"  # not submitted
    READY = "ready"
    RUNNING = "running"
    SUSPENDED = "suspended"
    DONE = "done"


NEW, READY, RUNNING, SUSPENDED, DONE = State  # without the look-up in the class, which every task would repeat


def level_of(priority: int) -> int:
    """Return the level of a priority: 255 is URGENT, 254 HIGH, the rest ORDINARY."""
    return URGENT if priority == URGENT_PRIORITY else HIGH if priority == HIGH_PRIORITY else ORDINARY


class Task:
    """One run of a model. The engine's lock guards all attributes except `outcome` and those that never change."""

    __slots__ = (
        "_callbacks",
        "_ended",
        "abort_wanted",
        "aborts",
        "aged",
        "arrival",
        "began",
        "buffers",
        "call",
        "cancelled",
        "cores",
        "deadline",
        "error",
        "level",
        "model",
        "near_end",
        "order",
        "priority",
        "ran",
        "segment",
        "segments",
        "state",
        "unanswered",
    )

    def __init__(
        self,
        model: DeviceModel,
        buffers: Buffers,
        *,
        priority: int = 0,
        deadline: float | None = None,
        cores: frozenset[int],
    ) -> None:
        self.model, self.buffers = model, buffers
        self.priority, self.level = priority, level_of(priority)
        self.deadline = deadline  # a moment of the engine's clock
        self.cores = cores
        self.segments = model.segments
        self.segment = 0  # the next function-call
        self.arrival = 0.0
        self.order = 0
        self.ran = 0.0  # seconds of the function-calls that are done
        self.aborts = 0  # for other tasks; the abort guard of the scheduler limits them
        self.aged = False
        self.state = NEW
        self.call: Call | None = None
        self.began = 0.0  # when its function-call was submitted
        self.unanswered = False  # a function-call got no answer: the device may use the buffers at any later time
        self.abort_wanted = False
        self.near_end = (math.inf, math.inf)  # when its function-call is not worth an abort, because a border is near
        self.cancelled: BaseException | None = None  # what ends the task at the next border
        self.error: BaseException | None = None
        self._callbacks: list[Callable[[Task], Any]] = []
        self._ended = threading.Lock()  # held until the task is done
        self._ended.acquire()

    @property
    def done(self) -> bool:
        return self.state is DONE

    def wait(self, timeout: float | None) -> bool:
        """Wait without the GIL for the end; return False after `timeout` seconds."""
        if self._ended.acquire(timeout=-1 if timeout is None else min(max(timeout, 0.0), threading.TIMEOUT_MAX)):
            self._ended.release()  # for other waiting threads
            return True
        return False

    def end(self, error: BaseException | None) -> None:
        """Enter DONE. The caller holds the lock of the engine, and calls `notify` after it has released the lock."""
        assert self.state is not DONE, "a task ends once"
        self.error, self.state, self.call = error, DONE, None

    @property
    def has_callbacks(self) -> bool:
        return bool(self._callbacks)

    def notify(self) -> KeyboardInterrupt | None:
        """Wake waiting threads and run the callbacks. Return Ctrl-C, if it came meanwhile."""
        callbacks, self._callbacks = self._callbacks, []
        self._ended.release()
        interrupts = [call_back(callback, self) for callback in callbacks]
        return next(filter(None, interrupts), None)

    def add_callback(self, callback: Callable[[Task], Any]) -> None:
        """Call `callback(task)` after the end. The caller holds the lock of the engine, and the task is not done."""
        self._callbacks.append(callback)


def call_back(callback: Callable[[Task], Any], task: Task) -> KeyboardInterrupt | None:
    """Call a callback and log what it raises, as concurrent.futures does. Return Ctrl-C on the main thread."""
    try:
        callback(task)
    except BaseException as error:
        if is_interrupt(error):
            return error
        _log.exception("%s: a done-callback has raised", task.model.name)
    return None


def is_interrupt(error: BaseException) -> TypeGuard[KeyboardInterrupt]:
    """Return whether an exception is Ctrl-C, which Python raises on the main thread only."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()

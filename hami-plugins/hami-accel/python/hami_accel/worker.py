"""Worker: the thread that drives a core of a device for callers that do not wait."""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

_NAP_S = 0.5e-3  # a task may begin as much later; each nap costs about 1 % of it
_SLEEP_S = 60.0  # between two looks whether the engine still exists


class Worker:
    """The thread that drives a core for callers that do not wait. The lock of the engine guards its attributes.

    To wake a thread takes longer than a short task. Where callers wait at once, and so replace the worker, it does not
    sleep until it is woken, but for a short time, and then looks itself whether it is wanted.
    """

    __slots__ = ("_baton", "napping", "replaced", "thread", "wanted", "woken")

    def __init__(self) -> None:
        self.thread = 0  # number of its thread, once that runs
        self.wanted = False  # it shall drive the core; a waiting caller can do that instead, and unset this
        self.replaced = False  # a waiting caller did that since the worker last looked
        self.napping = False  # it looks again after _NAP_S
        self.woken = False  # the baton is released, and the worker has not seen that yet
        self._baton = threading.Lock()
        self._baton.acquire()

    def wake(self, at_once: bool) -> None:
        self.wanted = True
        if not self.woken and (at_once or not self.napping):
            self.woken = True
            self._baton.release()

    def begin(self) -> bool:
        """Return whether the worker is wanted. If it was only replaced, it naps."""
        wanted, self.napping = self.wanted, self.replaced and not self.wanted
        if self.woken:
            self._baton.acquire(blocking=False)  # if the nap had ended before the worker was woken
        self.wanted = self.replaced = self.woken = False
        return wanted

    def work(self, reference: weakref.ref[Driver], core: int) -> None:
        """Drive the core whenever it is wanted, until the engine was freed or has another worker for the core."""
        self.thread = threading.get_ident()
        while True:
            self._baton.acquire(timeout=_NAP_S if self.napping else _SLEEP_S)
            engine = reference()
            if engine is None:
                return
            if not engine.begin_work(self, core):
                return
            del engine  # a worker that waits does not keep it alive


class Driver(Protocol):
    """The engine, for its workers."""

    def begin_work(self, worker: Worker, core: int) -> bool: ...

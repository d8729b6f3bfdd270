"""Engine: runs the tasks of all models of one device, in the order that the scheduler decides.

`Engine` has what all engines share: admission, and what the end of a function-call means. `ThreadEngine` waits for the
device in one thread per core. `VirtualEngine` is driven by the clock of a simulated device and has no threads.
"""

from __future__ import annotations

import abc
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import hami

from hami_accel.device import Call, Device
from hami_accel.errors import CallAborted, DeviceError, SlotLost
from hami_accel.scheduler import Scheduler
from hami_accel.task import DONE, LEVELS, NEW, ORDINARY, READY, Task, call_back, is_interrupt
from hami_accel.worker import Worker

_log = logging.getLogger("hami_accel")

DEFAULT_AGEING = 2.0  # seconds; a waiting task of lower level is then run before all others
DEFAULT_CALL_TIMEOUT = 30.0  # seconds; no function-call of a healthy device takes as long


class Engine(abc.ABC):
    """The tasks of one device."""

    def __init__(self, device: Device, *, ageing: float | None, call_timeout: float | None, preempt: bool) -> None:
        self.device = device
        self.process = os.getpid()  # with the threads of its workers
        self.call_timeout = call_timeout
        self._abort = preempt and device.capabilities.abort
        self._lock = threading.Lock()
        native = preempt and device.capabilities.native_preempt
        self._lanes = LEVELS if native else 1  # tasks that a core has at the same time: one per level if it preempts
        self._scheduler = Scheduler(device.capabilities.cores * self._lanes, ageing, preempt=preempt and not native)
        self._ended: list[Task] = []  # done; their threads are woken when the lock is released

    @abc.abstractmethod
    def now(self) -> float:
        """Return the time in seconds of this engine's clock."""

    @abc.abstractmethod
    def submit(self, task: Task, *, inline: bool = False) -> None:
        """Queue a task. `inline`: run it on the calling thread if a core is idle, and return when it is done."""

    @abc.abstractmethod
    def wait(self, task: Task, timeout: float | None) -> bool:
        """Wait for the end of a task; return False after `timeout` seconds."""

    def cancel(self, task: Task, error: BaseException | None = None) -> bool:
        """End a task now, or at the next border if it runs. Return False if it has ended or will end otherwise."""
        with self._lock:
            accepted = self._cancel(task, CancelledError() if error is None else error)
            ended = self._take_ended()
        notify(ended)
        return accepted

    def expire(self, task: Task) -> None:
        """End a task whose deadline has passed."""
        self.cancel(task, deadline_error(task))

    def add_callback(self, task: Task, callback: Callable[[Task], Any]) -> None:
        """Call `callback(task)` after the end of the task, which may be now."""
        with self._lock:
            if not task.done:
                task.add_callback(callback)
                return
        if (interrupt := call_back(callback, task)) is not None:
            raise interrupt

    def _cancel(self, task: Task, error: BaseException) -> bool:
        if task.done or task.cancelled is not None:
            return False
        if task.state is NEW or self._scheduler.remove(task):
            self._end(task, error)
            return True
        task.cancelled = error
        self._abort_call(task)
        return True

    def _abort_call(self, task: Task) -> None:
        if self._abort and not task.abort_wanted:
            task.abort_wanted = True
            if task.call is not None:
                try:
                    task.call.abort()
                except Exception:
                    _log.exception("%s: the device %s cannot abort", task.model.name, self.device.name)

    def _admit(self, task: Task) -> bool:
        """Queue a task, unless it was cancelled before."""
        if task.done:
            return False
        if self._lanes > 1:
            task.cores = frozenset(core * self._lanes + task.level for core in task.cores)
        self._scheduler.add(task, self.now())
        return True

    def _abort_for(self, task: Task) -> None:
        """Abort a function-call for a task that was queued, if no core is idle."""
        if self._abort and (victim := self._scheduler.victim(task, self.now())) is not None:
            self._abort_call(victim)

    def _choose(self, core: int) -> Task | None:
        now = self.now()
        if self._scheduler.with_deadline:
            self._end_expired(now)
        return self._scheduler.choose(core, now)

    def _end_expired(self, now: float) -> None:
        for task in self._scheduler.expired(now):
            self._end(task, deadline_error(task))

    def _begin_call(self, task: Task, core: int) -> Call:
        model, segment = task.model, task.segment
        if segment == 0:
            model.flush(task.buffers, to_device=True)
        if self._abort and model.segment_s:
            ends = self.now() + model.segment_s[segment]
            task.near_end = ends - model.border_wait_s, ends
        return model.submit(task.buffers, segment, core // self._lanes, task.priority)

    def _settle(self, task: Task, core: int, seconds: float, answered: bool, error: BaseException | None) -> None:
        """Decide what the end of a function-call means for its task. The lock is held."""
        task.call, task.abort_wanted = None, False
        aborted = isinstance(error, CallAborted)
        finished = error is None and answered
        if finished:
            task.segment += 1
            task.ran += seconds
        elif aborted:
            task.aborts += 1
        late = task.deadline is not None and self.now() > task.deadline
        lost: SlotLost | None = None
        if not answered:
            task.unanswered = True  # the slot is not used again, also if the caller gets another error
            lost = SlotLost(
                f"{task.model.name}: the device {self.device.name} did not answer function-call {task.segment + 1} of "
                f"{task.segments} within {self.call_timeout} s; the slot is lost, other slots can be used"
            )
            _log.error("%s", lost)
        if task.cancelled is not None:
            outcome: BaseException | None = task.cancelled
        elif lost is not None:
            outcome = lost
        elif error is not None and not aborted:
            outcome = error
        elif late:
            outcome = deadline_error(task)
        elif task.segment < task.segments:
            return
        else:
            outcome = None
        self._scheduler.release(core)
        self._end(task, outcome)

    def _end(self, task: Task, error: BaseException | None) -> None:
        task.end(error)
        self._ended.append(task)

    def _take_ended(self) -> list[Task]:
        ended, self._ended = self._ended, []
        return ended


class ThreadEngine(Engine):
    """Drives each core of a device from one thread at a time: a worker, or a caller that waits for a task."""

    def __init__(self, device: Device, *, ageing: float | None, call_timeout: float | None, preempt: bool) -> None:
        super().__init__(device, ageing=ageing, call_timeout=call_timeout, preempt=preempt)
        cores = device.capabilities.cores * self._lanes
        self._driven = [False] * cores  # a thread drives the core, or is about to
        self._workers: list[Worker | None] = [None] * cores
        self.now = time.monotonic  # type: ignore[method-assign]  # without the cost of one more call

    def now(self) -> float:
        return time.monotonic()

    def submit(self, task: Task, *, inline: bool = False) -> None:
        core, first = -1, None
        at_once = task.level > ORDINARY or task.deadline is not None
        with self._lock:
            if not self._admit(task):
                return
            for core in task.cores:
                if not self._driven[core]:
                    self._driven[core] = True
                    if inline:
                        first = self._next_task(core, task)
                    else:
                        self._wake_worker(core, at_once)
                    break
            else:
                self._abort_for(task)
                if at_once:
                    self._wake_napping(task)
            ended = self._take_ended()
        if first is None:
            notify(ended)
        else:
            self._drive(core, first, task, ended)

    def wait(self, task: Task, timeout: float | None) -> bool:
        if task.state is DONE:
            return True
        for duty in _duties.of_thread:
            duty.give_up()
        if task.deadline is None and timeout is None:
            self._help(task)
            return task.wait(None)
        self._do_not_replace(task)
        if task.deadline is None:
            return task.wait(timeout)
        until_deadline = task.deadline - self.now()
        if timeout is not None and timeout < until_deadline:
            return task.wait(timeout)
        if not task.wait(until_deadline):
            self.expire(task)
        return task.wait(None if timeout is None else timeout - max(until_deadline, 0.0))

    def add_callback(self, task: Task, callback: Callable[[Task], Any]) -> None:
        super().add_callback(task, callback)
        self._do_not_replace(task)

    def _do_not_replace(self, task: Task) -> None:
        """The caller of a task will not run it: its worker shall begin now."""
        if task.state is READY:
            with self._lock:
                self._wake_napping(task)

    def _wake_napping(self, task: Task) -> None:
        """Wake the workers that would look later whether they are wanted. The lock is held."""
        for core in task.cores:
            worker = self._workers[core]
            if worker is not None and worker.wanted:
                worker.wake(at_once=True)

    def _help(self, task: Task) -> None:
        """Drive a core on the waiting thread if its worker was woken but has not begun."""
        with self._lock:
            for core in task.cores:
                worker = self._workers[core]
                if worker is not None and worker.wanted:
                    worker.wanted, worker.replaced = False, True
                    break
            else:
                return
            first, ended = self._next_task(core, task), self._take_ended()
        self._drive(core, first, task, ended)

    def _wake_worker(self, core: int, at_once: bool) -> None:
        worker = self._workers[core]
        if worker is None:
            worker = self._workers[core] = Worker()
            name = f"hami-accel {self.device.name} core {core}"
            threading.Thread(target=worker.work, args=(weakref.ref(self), core), name=name, daemon=True).start()
        worker.wake(at_once)

    def begin_work(self, worker: Worker, core: int) -> bool:
        """Drive a core on the thread of its worker, if it is still wanted. Return False if it is replaced for good."""
        with self._lock:
            if not worker.begin():
                return True
            first, ended = self._next_task(core, None), self._take_ended()
        self._drive(core, first, None, ended)
        return self._workers[core] is worker

    def leave_core(self, core: int, drives: bool) -> None:
        """Give a core to another thread, because this one will wait. `drives`: it has the next task of the core."""
        with self._lock:
            worker = self._workers[core]
            if worker is not None and worker.thread == threading.get_ident():
                self._workers[core] = None
                drives = drives or worker.wanted
            if drives:
                self._wake_worker(core, at_once=True)

    def _next_task(self, core: int, until: Task | None) -> Task | None:
        """Return the task whose function-call this thread runs next; None: it leaves the core. The lock is held."""
        task = self._scheduler.running[core]
        if task is None or task.call is None:  # else Ctrl-C has ended the thread that waited for the function-call
            task = self._choose(core)
        if task is None:
            self._driven[core] = False
        elif until is not None and until.state is DONE:
            self._wake_worker(core, at_once=True)  # the task that was chosen is running, and the worker continues it
            return None
        return task

    def _drive(self, core: int, task: Task | None, until: Task | None, ended: list[Task]) -> None:
        """Run function-calls on a core, first that of `task`, until nothing is left to run, or `until` is done.

        `ended` are tasks whose callers do not know it yet.
        """
        duty = None
        try:
            while True:
                if any(each.has_callbacks for each in ended):
                    duty = _Duty(self, core, drives=task is not None)
                    with duty:
                        notify(ended)
                    if duty.given_up:
                        return
                else:
                    notify(ended)
                if task is None:
                    return
                ended_call = self._run_call(task, core)
                with self._lock:
                    self._settle(*ended_call)
                    task, ended = self._next_task(core, until), self._take_ended()
        except BaseException:  # Ctrl-C in a caller: the worker goes on, also with the function-call that runs
            with self._lock:
                if task is not None and self._driven[core] and not (duty and duty.given_up):
                    self._wake_worker(core, at_once=True)
            raise

    def _run_call(self, task: Task, core: int) -> tuple[Task, int, float, bool, BaseException | None]:
        """Run the next function-call of a task; return the arguments of `_settle`."""
        error: BaseException | None = None
        answered = True
        call = task.call
        try:
            if call is None:
                task.began = self.now()
                # No lock: this thread sets `call` before it reads `abort_wanted`, and _abort_call the other way round.
                task.call = call = self._begin_call(task, core)
                limit = self.call_timeout
            else:
                limit = None if self.call_timeout is None else max(0.0, task.began + self.call_timeout - self.now())
            if task.abort_wanted:
                call.abort()
            answered = call.wait(limit)
            if answered and task.segment + 1 == task.segments:
                task.model.flush(task.buffers, to_device=False)
        except BaseException as raised:
            if is_interrupt(raised):
                raise
            error = raised if isinstance(raised, Exception) else _as_error(task, raised)
        return task, core, self.now() - task.began, answered, error


class _Duty:
    """A core that a thread drives, or is the worker of, while it runs callbacks.

    A callback that waits for a task, also of another device, gives up the cores of its thread: that task, or one before
    it, may need them.
    """

    def __init__(self, engine: ThreadEngine, core: int, *, drives: bool) -> None:
        self._engine, self._core, self._drives = engine, core, drives
        self.given_up = False

    def __enter__(self) -> None:
        _duties.of_thread.append(self)

    def __exit__(self, *exception: object) -> None:
        _duties.of_thread.remove(self)

    def give_up(self) -> None:
        if not self.given_up:
            self.given_up = True
            self._engine.leave_core(self._core, self._drives)


class _Duties(threading.local):
    def __init__(self) -> None:
        self.of_thread: list[_Duty] = []


_duties = _Duties()


def _as_error(task: Task, raised: BaseException) -> DeviceError:
    """Return the error of the task for what would end the thread of a worker, or that of the caller."""
    error = DeviceError(f"{task.model.name}: the device raised {type(raised).__name__}({raised})")
    error.__cause__ = raised
    return error


def notify(ended: list[Task]) -> None:
    interrupts = [task.notify() for task in ended]
    if any(interrupts):
        raise next(filter(None, interrupts))


def deadline_error(task: Task) -> hami.DeadlineExceeded:
    return hami.DeadlineExceeded(
        f"{task.model.name}: the deadline of the task passed after {task.segment} of {task.segments} function-calls"
    )

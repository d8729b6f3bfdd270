"""VirtualEngine: runs the tasks of a simulated device in virtual time, on the thread that waits for one of them."""

from __future__ import annotations

import heapq
import itertools
import math

from hami_accel.device import Call, Device
from hami_accel.engine import Engine, deadline_error, notify
from hami_accel.task import Task


class VirtualEngine(Engine):
    """An event loop over the ends of function-calls and over deadlines. It waits for nothing and is deterministic."""

    def __init__(self, device: Device, *, ageing: float | None, call_timeout: float | None, preempt: bool) -> None:
        super().__init__(device, ageing=ageing, call_timeout=call_timeout, preempt=preempt)
        self._events: list[tuple[float, int, int, Call | None]] = []  # (when, order, core, call); no call: a deadline
        self._orders = itertools.count()
        self._began = [0.0] * device.capabilities.cores * self._lanes
        self._limits = [math.inf] * len(self._began)  # when the function-call of a core is lost

    def now(self) -> float:
        return float(self.device.clock.now())

    def submit(self, task: Task, *, inline: bool = False) -> None:
        with self._lock:
            if not self._admit(task):
                return
            self._abort_for(task)
            if task.deadline is not None:
                self._push(task.deadline, -1, None)
            self._fill()
            ended = self._take_ended()
        notify(ended)
        if inline:
            self.wait(task, None)

    def wait(self, task: Task, timeout: float | None) -> bool:
        """Let virtual time pass until the task is done, or for `timeout` virtual seconds."""
        until = math.inf if timeout is None else self.now() + timeout
        while not task.done:
            if not self._step(until):
                return task.done
        return True

    def run_until(self, moment: float) -> None:
        """Let virtual time pass until `moment`."""
        while self._step(moment):
            pass

    def _step(self, until: float) -> bool:
        """Run the next event that is not later than `until`; return False, at `until`, if there is none."""
        with self._lock:
            if not self._events or self._events[0][0] > until:
                if until < math.inf:
                    self.device.clock.advance_to(until)
                return False
            when, _, core, call = heapq.heappop(self._events)
            self.device.clock.advance_to(when)
            if call is None:
                self._expire()
            elif (task := self._scheduler.running[core]) is not None and task.call is call:
                if when < self._limits[core] and not call.query():
                    self._push_end(core, call)  # the device has preempted it
                else:
                    self._end_call(task, core, call)
            self._fill()
            ended = self._take_ended()
        notify(ended)
        return True

    def _expire(self) -> None:
        """End the tasks whose deadline has passed."""
        now = self.now()
        self._end_expired(now)
        for task in self._scheduler.running:
            if task is not None and task.deadline is not None and task.deadline <= now:
                self._cancel(task, deadline_error(task))

    def _end_call(self, task: Task, core: int, call: Call) -> None:
        error: BaseException | None = None
        answered = True
        try:
            answered = call.wait(0.0)
            if answered and task.segment + 1 == task.segments:
                task.model.flush(task.buffers, to_device=False)
        except Exception as raised:
            error = raised
        self._settle(task, core, self.now() - self._began[core], answered, error)

    def _fill(self) -> None:
        """Begin a function-call on every core that has none and for which a task waits."""
        for core in range(len(self._began)):
            while not self._is_busy(core) and (task := self._choose(core)) is not None:
                self._began[core] = self.now()
                try:
                    task.call = self._begin_call(task, core)
                except Exception as error:
                    self._settle(task, core, 0.0, True, error)
                    continue
                self._limits[core] = math.inf if self.call_timeout is None else self._began[core] + self.call_timeout
                self._push_end(core, task.call)

    def _is_busy(self, core: int) -> bool:
        running = self._scheduler.running[core]
        return running is not None and running.call is not None

    def _push_end(self, core: int, call: Call) -> None:
        ends_at: float = call.ends_at  # type: ignore[attr-defined]  # simulated calls have it
        if (when := min(ends_at, self._limits[core])) < math.inf:
            self._push(when, core, call)

    def _push(self, when: float, core: int, call: Call | None) -> None:
        heapq.heappush(self._events, (when, next(self._orders), core, call))

    def _abort_call(self, task: Task) -> None:
        super()._abort_call(task)
        if task.call is not None and task.abort_wanted:
            self._push_end(self._scheduler.running.index(task), task.call)

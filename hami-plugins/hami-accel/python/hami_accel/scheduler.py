"""Scheduler: decides which task runs next on which core. Pure: no threads, no locks, no clock.

Levels: urgent (priority 255) preempts high (254), and both preempt ordinary ones (0 to 253). Preemption is at borders
between function-calls. Suspended tasks stay on their core, at most one per level. Within a level, a larger priority
starts first, then the earlier arrival, and a running or suspended task is finished before another one starts.

Ageing: a task that has waited `ageing` seconds, in the queue or suspended, is ranked above all levels until its end.
Abort guard: after MAX_ABORTS aborts, no function-call of the task is aborted any more; borders still preempt it. The
aborts are kept for function-calls that have long to run: one that soon ends is not aborted.
"""

from __future__ import annotations

import itertools

from hami_accel.task import AGED, READY, RUNNING, SUSPENDED, URGENT, Task

MAX_ABORTS = 2  # of a task, so that it repeats at most two function-calls


class Scheduler:
    """The queue, and what each core runs and has suspended."""

    def __init__(self, cores: int, ageing: float | None, preempt: bool = True) -> None:
        self.ready: list[Task] = []
        self.running: list[Task | None] = [None] * cores
        self.suspended: list[dict[int, Task]] = [{} for _ in range(cores)]
        self.with_deadline = False  # some task had a deadline; without one, `expired` finds nothing
        self._ageing = ageing
        self._preempt = preempt  # False: a device that preempts itself, or the baseline of a benchmark
        self._orders = itertools.count()

    def add(self, task: Task, now: float) -> None:
        task.state, task.arrival, task.order = READY, now, next(self._orders)
        self.ready.append(task)
        if task.deadline is not None:
            self.with_deadline = True

    def remove(self, task: Task) -> bool:
        """Remove a task that is not running; return whether it was found."""
        if task.state is READY:
            self.ready.remove(task)
            return True
        if task.state is SUSPENDED:
            core = next(index for index, tasks in enumerate(self.suspended) if tasks.get(task.level) is task)
            del self.suspended[core][task.level]
            return True
        return False

    def release(self, core: int) -> None:
        """The running task of a core has ended."""
        self.running[core] = None

    def expired(self, now: float) -> list[Task]:
        """Remove and return the tasks that wait, in the queue or suspended, after their deadline."""
        waiting = [*self.ready, *(task for tasks in self.suspended for task in tasks.values())]
        found = [task for task in waiting if task.deadline is not None and task.deadline <= now]
        for task in found:
            self.remove(task)
        return found

    def choose(self, core: int, now: float) -> Task | None:
        """Return the task whose function-call is next on a core. A task that it preempts becomes suspended."""
        current = self.running[core]
        if not self.ready and not self.suspended[core]:
            return current
        best: Task | None = None
        for task in (*self.suspended[core].values(), *self.ready):
            if core in task.cores and (best is None or self._before(task, best, now)):
                best = task
        if current is not None and (best is None or not self._preempts(best, current, now)):
            return current
        if best is None:
            return None
        self.remove(best)
        if current is not None:
            assert current.level not in self.suspended[core], "at most one suspended task per level and core"
            self.suspended[core][current.level], current.state = current, SUSPENDED
            current.abort_wanted = False  # an abort that came at the border has its effect now
        self.running[core], best.state = best, RUNNING
        return best

    def victim(self, task: Task, now: float) -> Task | None:
        """Return the running task whose function-call should be aborted for `task`; None if none, or a core is idle."""
        found: Task | None = None
        for core in task.cores:
            running = self.running[core]
            if running is None:
                return None
            if self._preempts(task, running, now) and self._can_abort(running, now):
                found = running if found is None or running.level < found.level else found
        return found

    def _can_abort(self, running: Task, now: float) -> bool:
        near, ends = running.near_end
        return running.aborts < MAX_ABORTS and not running.abort_wanted and not near <= now <= ends

    def rank(self, task: Task, now: float) -> int:
        """Return the level, or AGED; a task that has aged remains so."""
        if not task.aged and self._ageing is not None and task.level < URGENT:
            task.aged = now - task.arrival - task.ran >= self._ageing
        return AGED if task.aged else task.level

    def _preempts(self, task: Task, running: Task, now: float) -> bool:
        return self._preempt and not running.aged and self.rank(task, now) > running.level

    def _before(self, task: Task, other: Task, now: float) -> bool:
        return self._key(task, now) > self._key(other, now)

    def _key(self, task: Task, now: float) -> tuple[int, bool, int, int]:
        rank = self.rank(task, now)
        return rank, task.state is SUSPENDED, 0 if rank == AGED else task.priority, -task.order

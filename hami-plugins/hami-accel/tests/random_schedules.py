"""Random schedules on the simulated NPU: class order is never violated, and every task ends exactly once.

    python tests/random_schedules.py 100000

The tests run some of them, this program the number that is its argument.
"""

from __future__ import annotations

import contextlib
import random
import sys
from concurrent.futures import CancelledError

import hami
import numpy as np

from hami_accel import AccelModel, DeviceError, SlotLost, engine_of
from hami_accel.engine import Engine
from hami_accel.sim import SimDevice, SimModel
from hami_accel.task import State, Task

_OUTCOMES = (DeviceError, SlotLost, CancelledError, hami.DeadlineExceeded)


class Checker:
    """Watches what the scheduler of an engine chooses."""

    def __init__(self, engine: Engine) -> None:
        self.scheduler = engine._scheduler
        self._choose, self.scheduler.choose = self.scheduler.choose, self.choose

    def choose(self, core: int, now: float) -> Task | None:
        before = self.scheduler.running[core]
        suspended_before = list(self.scheduler.suspended[core].values())
        task = self._choose(core, now)
        if task is None:
            assert not any(core in waiting.cores for waiting in self.scheduler.ready), "a core is idle while tasks wait"
            assert not self.scheduler.suspended[core], "a core is idle while a task is suspended"
            return None
        assert task.state is State.RUNNING
        assert before is None or before is task or before.done or task.level > before.level or task.aged, "preempted"
        for waiting in (*self.scheduler.ready, *self.scheduler.suspended[core].values()):
            if core not in waiting.cores or task.aged:
                continue
            assert waiting.level <= task.level, f"level {waiting.level} waits while level {task.level} runs"
            if task is not before and task not in suspended_before and waiting.level == task.level:
                assert (waiting.priority, -waiting.order) < (task.priority, -task.order), "order within a level"
        for level, suspended in self.scheduler.suspended[core].items():
            assert level == suspended.level
            assert suspended.state is State.SUSPENDED
        return task


def run_schedule(seed: int) -> int:
    """Run one random schedule, and return how many tasks it had."""
    rng = random.Random(seed)
    cores = rng.choice([1, 1, 2, 3])
    device = SimDevice(
        seed=seed, cores=cores, clock="virtual", abort=rng.random() < 0.5, jitter=rng.choice([0, 0.3]),
        fault_rate=rng.choice([0, 0, 0.05]), hang_rate=rng.choice([0, 0, 0.02]), dma_us=rng.choice([0, 5]),
        native_preempt=rng.random() < 0.2,
    )  # fmt: skip
    device.keep_history = False
    engine = engine_of(device, ageing=rng.choice([None, 2e-4, 2.0]), call_timeout=1e-3)
    Checker(engine)
    net = SimModel("net", [rng.uniform(1, 100) for _ in range(rng.randint(1, 5))])
    count = rng.randint(2, 12)
    ended: list[Task] = []
    with AccelModel(net, count, device=device, max_time_per_fc=1e-6) as model:
        if rng.random() < 0.3:
            model.set_scheduling(cores=[rng.randrange(cores)], slot=0)
        started = []
        for number in range(count):
            device.clock.advance_to(device.clock.now())
            model.run_until(device.clock.now() + rng.expovariate(1 / 60e-6))
            inputs = np.full((1, 4), number, np.float32)
            priority = rng.choice([rng.randint(0, 253), 7, 254, 255])
            try:
                deadline = rng.choice([None, None, rng.uniform(1e-5, 1e-3)])
                ticket = model.start(inputs, slot=number, priority=priority, deadline=deadline)
            except hami.DeadlineExceeded:
                assert deadline is not None
                assert deadline < net.expected_us * 1e-6 + 2 * device.dma_us * 1e-6
                continue
            engine.add_callback(ticket._task, ended.append)
            started.append((ticket, inputs))
            if rng.random() < 0.15:
                rng.choice(started)[0].cancel()
        rng.shuffle(started)
        for ticket, inputs in started:
            with contextlib.suppress(_OUTCOMES):
                assert np.array_equal(model.wait(ticket), net.reference({"x": inputs})["y"])
        scheduler = engine._scheduler
        assert not scheduler.ready
        assert not any(scheduler.running)
        assert not any(scheduler.suspended)
    assert len(ended) == len(set(map(id, ended))) == len(started)
    return len(started)


if __name__ == "__main__":
    total = int(sys.argv[1])
    print(total, "schedules,", sum(run_schedule(seed) for seed in range(total)), "tasks: no violation")

"""Priority, preemption, ageing and the abort guard, proven on the simulated NPU in virtual time."""

from __future__ import annotations

import queue
import random
from concurrent.futures import CancelledError, ThreadPoolExecutor

import hami
import numpy as np
import pytest
from conftest import ONE_BY_ONE, x
from random_schedules import run_schedule

from hami_accel import AccelModel, SlotLost, WaitTimeout, engine_of
from hami_accel.sim import SimDevice, SimModel


def names(device: SimDevice) -> list[str]:
    return [f"{name}{segment}" for name, segment, _ in device.history]


@pytest.fixture
def three():
    """Models low, high and urgent of two function-calls of 100 us on one device that cannot abort."""
    device = SimDevice(clock="virtual", abort=False)
    models = [
        AccelModel(SimModel(n, [100, 100]), 8, device=device, max_time_per_fc=ONE_BY_ONE) for n in ("o", "h", "u")
    ]
    yield device, *models
    for model in models:
        model.close()


def test_larger_priorities_start_first_then_earlier_arrivals(virtual):
    model = virtual(10)
    order = []
    for priority in (0, 5, 253, 5):
        ticket = model.start(x(), priority=priority)
        model._engine.add_callback(ticket._task, lambda task: order.append((task.priority, task.order)))
    model.run_until(1)
    assert order == [(0, 0), (253, 2), (5, 1), (5, 3)]  # the first one found the core idle


def test_urgent_preempts_high_which_preempts_ordinary_and_all_resume(three):
    device, ordinary, high, urgent = three
    tickets = [ordinary.start(x(), priority=0)]
    ordinary.run_until(50e-6)
    tickets.append(high.start(x(), priority=254))
    ordinary.run_until(150e-6)
    tickets.append(urgent.start(x(), priority=255))
    results = [model.wait(ticket) for model, ticket in zip((ordinary, high, urgent), tickets, strict=True)]
    assert names(device) == ["o0", "h0", "u0", "u1", "h1", "o1"]
    for result in results:
        assert np.array_equal(result, SimModel("any", [1, 1]).reference({"x": x()})["y"])


def test_the_same_level_does_not_preempt(three):
    device, ordinary, high, urgent = three
    for first, second, priority in ((ordinary, high, (0, 253)), (high, urgent, (254, 254)), (high, urgent, (255, 255))):
        device.history.clear()
        a = first.start(x(), priority=priority[0])
        b = second.start(x(), priority=priority[1])
        first.wait(a), second.wait(b)
        assert [name for name, _, _ in device.history] == [first.name] * 2 + [second.name] * 2


def test_a_suspended_task_resumes_before_another_of_its_level_starts(three):
    device, ordinary, high, urgent = three
    first = ordinary.start(x(), priority=0)
    between = urgent.start(x(), priority=255)
    other = high.start(x(), priority=253)
    high.wait(other), ordinary.wait(first), urgent.wait(between)
    assert names(device) == ["o0", "u0", "u1", "o1", "h0", "h1"]


def test_an_engine_without_preemption_is_a_priority_queue():
    device = SimDevice(clock="virtual")
    engine_of(device, preempt=False)
    with AccelModel(SimModel("net", [100, 100]), 3, device=device, max_time_per_fc=ONE_BY_ONE) as model:
        ends = {}
        for priority in (0, 1, 255):
            ticket = model.start(x(), priority=priority)
            model._engine.add_callback(ticket._task, lambda task: ends.setdefault(task.priority, device.clock.now()))
        model.run_until(1)
    assert {k: round(v * 1e6) for k, v in ends.items()} == {0: 200, 255: 400, 1: 600}


@pytest.mark.parametrize("cores", [1, 2])
def test_a_core_that_preempts_itself_gets_one_task_per_level_at_once(cores):
    device = SimDevice(clock="virtual", native_preempt=True, abort=False, cores=cores)
    with AccelModel(SimModel("net", [1000]), 8, device=device) as model:
        model.set_scheduling(cores=[cores - 1])
        first = model.start(x(), priority=3)
        second = model.start(x(), priority=200)
        model.run_until(400e-6)
        high, urgent = model.start(x(), priority=254), model.start(x(), priority=255)
        assert device.history == [("net", 0, cores - 1)] * 3, "the second ordinary task waits, the others do not"
        ends = {}
        for ticket in (first, second, high, urgent):
            model._engine.add_callback(ticket._task, lambda task: ends.setdefault(task.priority, device.clock.now()))
        results = [model.wait(ticket) for ticket in (first, second, high, urgent)]
    assert {key: round(value * 1e6) for key, value in ends.items()} == {255: 1400, 254: 2400, 3: 3000, 200: 4000}
    assert all(np.array_equal(one, results[0]) for one in results)


def test_a_task_that_the_core_preempts_is_not_lost_before_the_limit():
    device = SimDevice(clock="virtual", native_preempt=True, abort=False)
    engine_of(device, call_timeout=2.5e-3)
    with AccelModel(SimModel("net", [1000]), 8, device=device) as model:
        low, urgent = model.start(x(), priority=0), model.start(x(), priority=255)
        assert np.array_equal(model.wait(low), model.wait(urgent))
        assert round(device.clock.now() * 1e6) == 2000
        low = model.start(x(), priority=0)
        for _ in range(2):
            model.start(x(), priority=255)
        with pytest.raises(SlotLost):
            model.wait(low)


def test_a_core_that_preempts_itself_runs_an_urgent_task_beside_an_ordinary_one_in_real_time():
    device = SimDevice(native_preempt=True)
    with (
        AccelModel(SimModel("long", [60_000_000]), device=device) as long,
        AccelModel(SimModel("short", [100]), device=device) as short,
    ):
        low = long.start(x(), priority=0)
        assert np.array_equal(short.infer(x(), priority=255), short.wait(short.start(x(), priority=254)))
        assert low.cancel()
        with pytest.raises(CancelledError):
            long.wait(low)


def test_abort_ends_a_function_call_and_repeats_it_from_its_start(virtual):
    model = virtual(100, 100)
    low = model.start(x(), priority=0)
    model.run_until(150e-6)
    urgent = model.start(x(), priority=255)
    expected = SimModel("any", [1, 1]).reference({"x": x()})["y"]
    assert np.array_equal(model.wait(urgent), expected)
    assert round(model.device.clock.now() * 1e6) == 350
    assert np.array_equal(model.wait(low), expected)
    assert round(model.device.clock.now() * 1e6) == 450  # 100 + 50 aborted + 200 urgent + 100 again
    assert names(model.device) == ["net0", "net1", "net0", "net1", "net1"]


def test_after_two_aborts_no_function_call_of_a_task_is_aborted(virtual):
    model = virtual(100, 100)
    low = model.start(x(), priority=0)
    clock, waited = model.device.clock, []
    for moment in (50, 400, 650):  # in its first function-call, and twice in its second one
        model.run_until(moment * 1e-6)
        began = clock.now()
        model.infer(x(), priority=255)
        waited.append(round((clock.now() - began) * 1e6))
    assert waited == [200, 200, 250], "the third urgent task waits for the border"
    model.wait(low)
    assert len(model.device.history) == 4 + 3 * 2, "the task began four function-calls, two of which were aborted"


@pytest.mark.parametrize(("limit", "moment", "end"), [(120, 30, 130), (120, 50, 200), (0.1, 90, 190), (0, 190, 290)])
def test_a_function_call_that_soon_ends_is_not_aborted(limit, moment, end):
    """Soon is half of max_time_per_fc: 60 us of the first function-call, which takes 100 us."""
    device = SimDevice(clock="virtual")
    with (
        AccelModel(SimModel("low", [100, 100]), device=device, max_time_per_fc=limit) as low,
        AccelModel(SimModel("urgent", [100]), device=device) as urgent,
    ):
        ticket = low.start(x(), priority=0)
        low.run_until(moment * 1e-6)
        urgent.infer(x(), priority=255)
        assert round(device.clock.now() * 1e6) == end
        low.wait(ticket)


def test_cancel_of_a_running_task_aborts_it(virtual):
    model = virtual(100)
    ticket = model.start(x())
    model.run_until(10e-6)
    assert ticket.cancel()
    model.run_until(11e-6)
    assert ticket.done()


def test_tasks_use_only_the_cores_of_their_slot():
    device = SimDevice(clock="virtual", cores=3)
    with AccelModel(SimModel("net", [100]), 6, device=device) as model:
        model.set_scheduling(cores=[1, 2])
        for ticket in [model.start(x()) for _ in range(6)]:
            model.wait(ticket)
    assert sorted(core for _, _, core in device.history) == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("abort", [False, True])
def test_no_ordinary_task_waits_longer_than_the_ageing_time_and_its_own(abort):
    device = SimDevice(clock="virtual", abort=abort)
    device.keep_history = False
    engine = engine_of(device, ageing=2.0)
    rng = random.Random(6)
    waits = []
    with (
        AccelModel(SimModel("urgent", [2500] * 2), 4096, device=device, max_time_per_fc=ONE_BY_ONE) as urgent,
        AccelModel(SimModel("low", [10_000] * 5), 4, device=device, max_time_per_fc=ONE_BY_ONE) as low,
    ):
        own, ticket, started, arrival = 0.05, None, 0.0, 0.0
        tickets = []
        while arrival < 60:
            arrival += rng.expovariate(0.95 / 0.005)  # 95 % of the core
            urgent.run_until(arrival)
            tickets.append(urgent.start(x(), priority=255))
            if len(tickets) > 1000:
                for done in [t for t in tickets if t.done()]:
                    urgent.wait(done)
                tickets = [t for t in tickets if not t._waited]
            if ticket is not None and ticket.done():
                low.wait(ticket)
                ticket = None
            if ticket is None:
                ticket, started = low.start(x(), priority=0), device.clock.now()
                engine.add_callback(ticket._task, lambda _, at=started: waits.append(device.clock.now() - at))
    longest = max(waits)
    assert len(waits) > 25
    assert longest <= 2.0 + own + 0.011  # and the function-call that ran when the time had passed
    assert longest > 1.0, "the load was too small to show ageing"


def test_without_ageing_an_ordinary_task_waits_as_long_as_urgent_ones_arrive():
    device = SimDevice(clock="virtual")
    engine_of(device, ageing=None)
    with AccelModel(SimModel("net", [1000]), 4, device=device) as model:
        model.start(x(), priority=255, slot=0)
        low = model.start(x(), priority=0, slot=1)
        for number in range(5000):
            model.start(x(), priority=255, slot=2 + number % 2)
            model.wait(2 * (number > 0) + (number - 1) % 2 if number else 0)
        assert device.clock.now() > 4
        assert not low.done()


def test_random_schedules_keep_the_order_of_classes_and_end_every_task_once():
    assert sum(run_schedule(seed) for seed in range(1500)) > 5000


def test_equal_seeds_give_equal_times():
    def times(seed: int) -> list[float]:
        device = SimDevice(clock="virtual", seed=seed, jitter=0.2)
        with AccelModel(SimModel("net", [100, 50]), device=device) as model:
            return [model.benchmark(1)["mean_us"] for _ in range(5)]

    assert times(1) == times(1) != times(2)


@pytest.mark.parametrize("seed", range(4))
def test_tasks_of_many_threads_end_once_whether_workers_or_callers_run_them(seed):
    net = SimModel("net", [1, 2, 3])
    ended: queue.SimpleQueue = queue.SimpleQueue()

    def call(model: AccelModel, number: int) -> None:
        rng = random.Random(100 * seed + number)
        for _ in range(100):
            inputs = x(*(rng.random() for _ in range(4)))
            deadline = rng.choice([None, None, None, rng.uniform(1e-4, 1)])
            ticket = model.start(inputs, priority=rng.choice([0, 5, 254, 255]), deadline=deadline)
            model._engine.add_callback(ticket._task, ended.put)
            way = rng.choice(["wait", "wait", "cancel", "limit"])
            if way == "cancel":
                ticket.cancel()
            try:
                assert np.array_equal(wait(ticket, 1e-3 if way == "limit" else None), net.reference({"x": inputs})["y"])
            except (CancelledError, hami.DeadlineExceeded):
                assert way == "cancel" or deadline is not None

    def wait(ticket, timeout: float | None):
        for _ in range(10_000):
            try:
                return ticket.wait(timeout)
            except WaitTimeout:
                pass
        raise AssertionError("the task did not end")

    device = SimDevice(cores=1 + seed % 2, abort=seed < 2)
    with AccelModel(net, 16, device=device, max_time_per_fc=ONE_BY_ONE) as model, ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(call, model, number) for number in range(6)]:
            done.result(120)
        scheduler = model._engine._scheduler
        assert not scheduler.ready
        assert not any(scheduler.running)
        assert not any(scheduler.suspended)
    assert len({id(task) for task in [ended.get(timeout=60) for _ in range(600)]}) == 600
    assert ended.empty()

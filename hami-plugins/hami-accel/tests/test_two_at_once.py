"""Each pair of public methods at the same time, and a caller that leaves at each moment of a task."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial

import hami
import numpy as np
import pytest
from checked_device import CheckedDevice
from conftest import ONE_BY_ONE, x
from together import LONG_S, pairs, run_together

from hami_accel import AccelModel, DeviceError, ModelClosed, SlotError, SlotLost, engine_of
from hami_accel.sim import SimDevice, SimModel

NET = SimModel("net", [40, 40, 40])
TYPED = (hami.RequestError, CancelledError)


def tell(model, ticket):
    told = threading.Event()
    ticket.add_done_callback(lambda _: told.set())
    assert told.wait(LONG_S) or not ticket.done()


async def until_done(ticket):
    await ticket


async def and_leave(ticket):
    waiting = asyncio.ensure_future(until_done(ticket))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


METHODS = {
    "start": lambda model, ticket: model.start(x(), deadline=1.0).cancel(),
    "start and wait": lambda model, ticket: model.wait(model.start(x(), priority=255)),
    "wait": lambda model, ticket: model.wait(ticket),
    "wait in short turns": lambda model, ticket: ticket.wait(1e-5),
    "wait for slot 0": lambda model, ticket: model.wait(0, LONG_S),
    "infer": lambda model, ticket: model.infer(x(), priority=254),
    "infer with little time": lambda model, ticket: model.infer(x(), timeout=1e-6),
    "infer with a deadline": lambda model, ticket: model.infer(x(), deadline=1e-3),
    "is_busy": lambda model, ticket: model.is_busy(0),
    "bind": lambda model, ticket: model.bind(1, "x", x()),
    "set_scheduling": lambda model, ticket: model.set_scheduling(priority=7),
    "summary": lambda model, ticket: model.summary(),
    "benchmark": lambda model, ticket: model.benchmark(2),
    "close": lambda model, ticket: model.close(),
    "done": lambda model, ticket: ticket.done(),
    "cancel": lambda model, ticket: ticket.cancel(),
    "add_done_callback": tell,
    "await": lambda model, ticket: asyncio.run(until_done(ticket)),
    "await and leave": lambda model, ticket: asyncio.run(and_leave(ticket)),
}


@pytest.mark.parametrize("abort", [True, False])
@pytest.mark.parametrize(("first", "second"), pairs(METHODS))
def test_each_pair_of_methods_at_the_same_time(first, second, abort):
    device = CheckedDevice(abort=abort)
    engine_of(device, call_timeout=LONG_S)
    for _ in range(3):
        model = AccelModel(NET, 4, device=device, max_time_per_fc=ONE_BY_ONE)
        ticket = model.start(x(), slot=0)
        run_together([partial(METHODS[name], model, ticket) for name in (first, second)], TYPED)
        if "close" not in (first, second):
            leave_all(model)
            assert np.array_equal(model(x()), NET.reference({"x": x()})["y"])
            assert become_idle(model)
        model.close()
        with pytest.raises(ModelClosed):
            model(x())
    assert device.problems == []


@pytest.mark.parametrize("abort", [True, False])
@pytest.mark.parametrize("hangs", [0, 2])
@pytest.mark.parametrize("first", METHODS)
def test_each_pair_of_methods_while_a_call_hangs(first, hangs, abort):
    """One slot is lost at most, and another model of the device goes on."""
    for second in list(METHODS)[list(METHODS).index(first) :]:
        device = HangsAt(hangs, abort=abort)
        engine_of(device, call_timeout=2e-3)
        models = [AccelModel(NET, 4, device=device, max_time_per_fc=ONE_BY_ONE) for _ in range(2)]
        ticket = models[0].start(x(), slot=0)

        def run(name, model=models[0], ticket=ticket):
            with contextlib.suppress(TYPED):
                METHODS[name](model, ticket)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(run, (first, second)))
        for model in models if "close" not in (first, second) else models[1:]:
            leave_all(model)
            assert np.array_equal(answer_of(model), NET.reference({"x": x()})["y"])
            assert sorted(model.summary()["slots"])[:3] == ["idle"] * 3
        for model in models:
            model.close()
        assert device.problems == []


def answer_of(model):
    """Return the outputs of a task; the first one may be that which hangs."""
    try:
        return model(x())
    except SlotLost:
        return model(x())


def become_idle(model):
    """Return whether all slots become idle: a thread may still take the result of a task that has ended."""
    for _ in range(1000):
        if model.summary()["slots"] == ["idle"] * 4:
            return True
        model(x())
    return False


def leave_all(model):
    """Wait for what the callers have started and left."""
    for number in range(4):
        for _ in range(1000):
            if not model.is_busy(number):
                break
            with contextlib.suppress(TYPED):
                model.wait(number, LONG_S)


LEAVES = ("cancel", "close", "deadline", "infer", "await", "await and close the coroutine", "nothing")


def moments(calls):
    """Before the start, while the task is queued, at each border, and between two borders."""
    return [0.0, *(at * 1e-6 for at in range(10, 40 * calls + 50, 10))]


@pytest.mark.parametrize("hangs", [None, 0, 1, 2])
@pytest.mark.parametrize("abort", [True, False])
@pytest.mark.parametrize("leave", LEAVES)
def test_a_caller_leaves_at_each_moment_of_a_task(leave, abort, hangs):
    """The device never gets buffers that it may still use, and another slot serves the next caller."""
    for moment, queued in itertools.product(moments(3), (False, True)):
        device = HangsAt(hangs, clock="virtual", abort=abort)
        engine_of(device, call_timeout=1e-3)
        model = AccelModel(NET, 3, device=device, max_time_per_fc=ONE_BY_ONE)
        before = model.start(x(), slot=1) if queued else None
        outcome = left_at(model, leave, moment)
        assert outcome is None or isinstance(outcome, (*TYPED, GeneratorExit)), outcome
        if before is not None and leave != "close":
            with contextlib.suppress(TYPED):
                model.wait(before)
        device.hangs = None
        if leave != "close":
            model.run_until(device.clock.now() + 1)
            for _ in range(6):
                assert np.array_equal(model(x()), NET.reference({"x": x()})["y"])
            for state in model.summary()["slots"]:
                assert state in ("idle", "lost")
                assert state == "idle" or hangs is not None
        model.close()
        assert device.problems == []


class HangsAt(CheckedDevice):
    """Never answers the first function-call with this number."""

    def __init__(self, hangs, **settings) -> None:
        super().__init__(**settings)
        self.hangs = hangs

    def place(self, call, seconds, core):
        hangs = call._segment == self.hangs
        if hangs:
            self.hangs = None
        super().place(call, math.inf if hangs else seconds, core)


def left_at(model, leave, moment):
    try:
        if leave == "infer":
            model.infer(x(), timeout=moment)
        elif leave == "deadline":
            model.wait(model.start(x(), deadline=moment + 121e-6))
        elif leave.startswith("await"):
            asyncio.run(leave_await(model, leave, moment))
        else:
            ticket = model.start(x(), slot=0)
            model.run_until(moment)
            if leave == "cancel":
                ticket.cancel()
            elif leave == "close":
                model.close()
            ticket.wait()
    except BaseException as error:
        return error
    return None


async def leave_await(model, leave, moment):
    ticket = model.start(x(), slot=0)
    model.run_until(moment)
    if leave == "await":
        ticket.cancel()
        await until_done(ticket)
    else:
        waiting = ticket.__await__()
        waiting.send(None)  # virtual time passes; the task has ended, and its outputs are not taken
        waiting.close()


@pytest.mark.parametrize("clock", ["virtual", "real"])
@pytest.mark.parametrize("leave", ["cancel", "deadline"])
def test_the_slot_of_a_hung_call_is_lost_also_if_its_caller_has_left(clock, leave, caplog):
    runs = threading.Event()
    device = CheckedDevice(clock=clock, abort=False, hang_rate=1, on_call=lambda *_: runs.set())
    limit_s = 0.01 if clock == "virtual" else 0.5  # a busy machine needs time for the calls that do not hang
    engine_of(device, call_timeout=limit_s)
    with AccelModel(NET, 2, device=device) as model:
        ticket = model.start(x(), slot=0)
        assert clock == "virtual" or runs.wait(LONG_S)
        if leave == "cancel":
            ticket.cancel()
        else:
            model._engine.expire(ticket._task)  # as the wait for a task with a deadline does
        with pytest.raises(hami.DeadlineExceeded if leave == "deadline" else CancelledError):
            model.wait(ticket)
        device.hang_rate = 0
        assert model.summary()["slots"] == ["lost", "idle"]
        for _ in range(3):
            assert np.array_equal(model(x()), NET.reference({"x": x()})["y"])
        assert f"did not answer function-call 1 of 1 within {limit_s} s" in caplog.text
    assert device.problems == []


def test_the_errors_of_a_lost_slot_say_that_it_cannot_be_used_again():
    device = CheckedDevice(clock="virtual", abort=False, hang_rate=1)
    engine_of(device, call_timeout=0.01)
    with AccelModel(NET, 2, device=device) as model:
        ticket = model.start(x(), slot=0)
        with pytest.raises(SlotLost):
            model.wait(ticket)
        for use in (lambda: model.start(x(), slot=0), lambda: model.bind(0, "x", x()), lambda: model.wait(0)):
            with pytest.raises(SlotError, match="net: slot 0 is lost; use another slot"):
                use()
        busy = model.start(x())
        with pytest.raises(SlotError, match="none of 2 slots is idle, and 1 are lost; wait for a task"):
            model.start(x())
        with pytest.raises(SlotLost):
            model.wait(busy)
        with pytest.raises(SlotError, match="not answered in any of 2 slots; create another AccelModel"):
            model(x())


def test_a_model_with_a_hung_call_is_not_freed(caplog):
    from hami_accel.model import _leaked

    device = CheckedDevice(clock="virtual", abort=False, hang_rate=1)
    engine_of(device, call_timeout=0.01)
    model = AccelModel(NET, 2, device=device)
    with pytest.raises(SlotLost):
        model.wait(model.start(x(), slot=0))
    model.close()
    assert device.problems == []
    assert "its memory is not freed, because a function-call has not ended" in caplog.text
    assert _leaked.pop()[0] is model._model


def test_close_waits_until_a_hung_call_is_lost_and_does_not_free_the_model():
    device = CheckedDevice(abort=False, hang_rate=1)
    engine_of(device, call_timeout=0.01)
    model = AccelModel(NET, 2, device=device)
    ticket = model.start(x())
    model.close()
    with pytest.raises(ModelClosed):
        ticket.wait()
    assert device.problems == []


RAISED = [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, StopIteration]


@pytest.mark.parametrize("raised", RAISED)
def test_a_callback_that_raises_is_logged_and_the_core_goes_on(gate, raised, caplog):
    """As concurrent.futures: the next callback runs, and so does the next task of the core."""
    ran = threading.Event()

    def fail(_):
        raise raised("in a callback")

    with AccelModel(NET, 2, device=gate.device) as model:
        tickets = [model.start(x()), model.start(x())]
        tickets[0].add_done_callback(fail)
        tickets[0].add_done_callback(lambda _: ran.set())
        gate.open(2)
        for ticket in tickets:
            assert np.array_equal(model.wait(ticket, LONG_S), NET.reference({"x": x()})["y"])
        assert ran.wait(LONG_S)
    assert [record.levelno for record in caplog.records if "a done-callback has raised" in record.message] == [
        logging.ERROR
    ]


@pytest.mark.parametrize("raised", [error for error in RAISED if error is not KeyboardInterrupt])
def test_a_callback_of_a_task_that_has_ended_raises_into_the_log(raised, model_of, caplog):
    """Where the callback runs at once, the caller does not get its exception."""

    def fail(_):
        raise raised("in a callback")

    model = model_of(SimDevice(clock="virtual"))
    ticket = model.start(x())
    model.wait(ticket)
    ticket.add_done_callback(fail)
    assert "a done-callback has raised" in caplog.text


@pytest.fixture
def model_of():
    models = []

    def load(device):
        models.append(AccelModel(NET, 2, device=device))
        return models[-1]

    yield load
    for model in models:
        model.close()


@pytest.mark.parametrize("raised", RAISED)
@pytest.mark.parametrize("inline", [True, False])
def test_what_a_device_raises_is_the_error_of_its_task(raised, inline, model_of):
    """The thread of the core goes on, and Ctrl-C reaches the caller that runs the task itself."""
    fails = threading.Event()

    def on_call(name, segment, core):
        if fails.is_set():
            fails.clear()
            raise raised("by the device")

    model = model_of(SimDevice(on_call=on_call))
    for _ in range(3):
        fails.set()
        is_interrupt = raised is KeyboardInterrupt and inline
        own = issubclass(raised, Exception) or is_interrupt
        with pytest.raises(raised if own else DeviceError, match="by the device"):
            model(x()) if inline else model.wait(model.start(x()), LONG_S)
        for _ in range(2):
            assert np.array_equal(model.wait(model.start(x()), LONG_S), NET.reference({"x": x()})["y"])
    leave_both(model)
    assert model.summary()["slots"] == ["idle", "idle"]


def leave_both(model):
    """Run a task in each slot: a slot that Ctrl-C left is then idle."""
    for number in range(2):
        for _ in range(100_000):
            try:
                model.wait(model.start(x(), slot=number), LONG_S)
                break
            except SlotError:
                continue


def test_a_callback_of_a_cancelled_task_that_was_not_started_runs_once(virtual):
    model, ended = virtual(100), []
    first, second = model.start(x()), model.start(x())
    second.add_done_callback(ended.append)
    assert second.cancel()
    assert not second.cancel()
    model.wait(first)
    assert ended == [second]

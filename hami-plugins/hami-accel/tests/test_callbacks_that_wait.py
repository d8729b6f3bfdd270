"""A done-callback runs on the thread of a core. It may wait for tasks that need this core, and close the model."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from conftest import x

from hami_accel import AccelModel, ModelClosed
from hami_accel.sim import SimDevice, SimModel

LONG_S = 30.0
RESULT = SimModel("net", [100]), np.array([[1.5, 2.0, 2.5, 3.0]], np.float32)


@pytest.fixture
def model(gate):
    with AccelModel(RESULT[0], 8, device=gate.device) as made:
        yield made


class Callback:
    """Calls a function once, and keeps what it returned or raised."""

    def __init__(self, function):
        self._function, self._ended, self._result = function, threading.Event(), None

    def __call__(self, ticket):
        try:
            self._result = self._function(ticket)
        except BaseException as error:
            self._result = error
        self._ended.set()

    def result(self):
        assert self._ended.wait(LONG_S), "the callback did not end"
        return self._result


WAYS = {
    "infer": lambda model, ticket: model.infer(x()),
    "infer with a timeout": lambda model, ticket: model.infer(x(), timeout=LONG_S),
    "infer with a deadline": lambda model, ticket: model.infer(x(), deadline=LONG_S),
    "start and wait": lambda model, ticket: model.start(x()).wait(),
    "start and wait with a timeout": lambda model, ticket: model.start(x()).wait(LONG_S),
    "the same task": lambda model, ticket: ticket.wait(),
}


@pytest.mark.parametrize("others", [0, 1, 3])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("drives", ["worker", "caller"])
def test_a_callback_may_wait_for_a_task_of_its_core(gate, model, way, others, drives):
    """Other tasks wait for the core: its thread has chosen the next one before it calls the callback."""
    callback = Callback(lambda ticket: WAYS[way](model, ticket))
    first = model.start(x())
    assert gate.entered.acquire(timeout=LONG_S)
    first.add_done_callback(callback)
    waiting = [model.start(x()) for _ in range(others)]
    caller = threading.Thread(target=lambda: waiting and waiting[0].wait())
    if drives == "caller":
        caller.start()
    gate.open(others + 2)
    np.testing.assert_array_equal(callback.result(), RESULT[1])
    for ticket in waiting[1 if drives == "caller" else 0 :]:
        np.testing.assert_array_equal(ticket.wait(LONG_S), RESULT[1])
    if drives == "caller":
        caller.join(LONG_S)
        assert not caller.is_alive()
    gate.open(1)
    np.testing.assert_array_equal(model.infer(x(), timeout=LONG_S), RESULT[1])  # one thread drives the core


@pytest.mark.parametrize("others", [0, 1, 3])
def test_a_callback_may_close_the_model(gate, model, others):
    callback = Callback(lambda ticket: model.close())
    first = model.start(x())
    assert gate.entered.acquire(timeout=LONG_S)
    first.add_done_callback(callback)
    waiting = [model.start(x()) for _ in range(others)]
    gate.open(others + 1)
    assert callback.result() is None
    for ticket in (first, *waiting):
        with pytest.raises(ModelClosed):
            ticket.wait(LONG_S)
    assert model.summary()["slots"] == ["idle"] * 8


def test_a_callback_of_a_task_that_runs_on_its_caller_may_close_the_model(gate, model):
    gate.open(1)
    first = model.start(x())
    first.add_done_callback(Callback(lambda ticket: ticket.wait(LONG_S)))
    callback = Callback(lambda ticket: model.close())
    second = model.start(x())
    second.add_done_callback(callback)
    gate.open(1)
    with pytest.raises(ModelClosed):
        second.wait()
    assert callback.result() is None


def test_callbacks_of_two_devices_may_wait_for_each_other():
    models = [AccelModel(RESULT[0], 4, device=SimDevice()) for _ in range(2)]
    both = threading.Barrier(2)

    def wait_for(other):
        def run(ticket):
            both.wait(LONG_S)
            return other.infer(x(), timeout=LONG_S)

        return Callback(run)

    callbacks = [wait_for(models[1]), wait_for(models[0])]
    for model, callback in zip(models, callbacks, strict=True):
        model.start(x()).add_done_callback(callback)
    for callback in callbacks:
        np.testing.assert_array_equal(callback.result(), RESULT[1])
    for model in models:
        model.close()


def test_a_thread_that_gave_up_its_core_ends(gate, model):
    gate.open(60)
    for _ in range(20):
        callback = Callback(lambda ticket: (model.infer(x(), timeout=LONG_S), threading.current_thread())[1])
        ticket = model.start(x())
        ticket.add_done_callback(callback)
        thread = callback.result()
        if thread is not threading.current_thread():  # else the task had ended before it had a callback
            thread.join(LONG_S)
            assert not thread.is_alive()
        ticket.wait(LONG_S)


def test_a_callback_that_cannot_be_called_is_refused(model, gate):
    ticket = model.start(x())
    with pytest.raises(TypeError, match="net: a done-callback is called, got int"):
        ticket.add_done_callback(3)
    gate.open(1)
    ticket.wait(LONG_S)

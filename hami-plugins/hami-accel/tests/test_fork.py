"""A forked child has neither the threads nor the device of its parent: a model says so, and never waits."""

from __future__ import annotations

import json

import hami
import numpy as np
import pytest
from conftest import x
from together import run_forked

from hami_accel import AccelModel, ModelClosed, accel_tensor
from hami_accel.sim import SimDevice, SimModel

# Python 3.12 warns of each fork of a process with threads, which is what these tests do.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

CALLS = {
    "start": lambda model, ticket: model.start(x()),
    "infer": lambda model, ticket: model.infer(x()),
    "infer with a timeout": lambda model, ticket: model.infer(x(), timeout=60),
    "wait": lambda model, ticket: model.wait(ticket),
    "wait for slot": lambda model, ticket: model.wait(0),
    "bind": lambda model, ticket: model.bind(1, "x", x()),
    "benchmark": lambda model, ticket: model.benchmark(),
    "cancel": lambda model, ticket: ticket.cancel(),
    "add_done_callback": lambda model, ticket: ticket.add_done_callback(print),
}


@pytest.fixture
def running(gate):
    """A model with a task that runs, and its ticket."""
    with AccelModel(SimModel("net", [100]), 2, device=gate.device) as model:
        ticket = model.start(x())
        assert gate.entered.acquire(timeout=60)
        yield model, ticket
        gate.open()
        np.testing.assert_array_equal(ticket.wait(60), [[1.5, 2.0, 2.5, 3.0]])


@pytest.mark.parametrize("name", CALLS)
def test_each_call_in_a_child_is_an_error(running, name):
    def run():
        with pytest.raises(ModelClosed, match=r"net: the model is of process \d+, which has forked this one; create"):
            CALLS[name](*running)

    run_forked(run)


def test_a_lock_that_another_thread_of_the_parent_holds_does_not_matter(running):
    model, _ = running

    def run():
        with pytest.raises(ModelClosed):
            model.infer(x())
        model.close()

    with model._slots._lock, model._engine._lock:  # as if a thread was forked there
        run_forked(run)


def test_a_child_closes_nothing_and_does_not_wait(running):
    model, _ = running
    run_forked(model.close)
    assert not model._slots.closed


def test_a_child_has_models_of_its_own_on_the_device_of_the_parent():
    device = SimDevice()
    model = AccelModel(SimModel("net", [100]), device=device)
    expected = model.infer(x())

    def run():
        with AccelModel(SimModel("net", [100]), device=device) as own:
            np.testing.assert_array_equal(own.infer(x(), timeout=20), expected)

    run_forked(run)
    np.testing.assert_array_equal(model.infer(x(), timeout=20), expected)


def test_a_child_opens_models_while_threads_of_the_parent_open_some(tmp_path):
    model = tmp_path / "net.json"
    model.write_text(json.dumps({"models": [{"name": "net", "calls_us": [1]}]}))
    with accel_tensor._lock:  # as if a thread was forked there
        run_forked(lambda: hami.pipe(f"AccelTensor(model='{model}', device='sim')").close())


def test_a_child_cuts_models_while_threads_of_the_parent_cut_some():
    sessions = pytest.importorskip("hami_accel.onnx_device.sessions")
    with sessions._allocator_lock:
        run_forked(lambda: sessions.piece_options(1))

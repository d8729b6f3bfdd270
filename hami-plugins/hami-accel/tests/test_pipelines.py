"""AccelTensor: the priority, deadline and cancellation of a request reach the device."""

from __future__ import annotations

import json
import threading
from concurrent.futures import CancelledError

import hami
import numpy as np
import pytest
from conftest import x

from hami_accel import DeviceError, InputError, SlotLost, engine_of
from hami_accel import platform as platforms
from hami_accel.sim import SimDevice, SimModel


@pytest.fixture
def device(monkeypatch):
    """The device `sim` of this process, for this test only."""
    made = SimDevice()
    monkeypatch.setitem(platforms._devices, "sim", made)
    return made


@pytest.fixture
def net(tmp_path):
    """net(name, calls_us…) writes a simulated model and returns the expression of a node that runs it."""

    def write(name: str, *calls_us: float, n_task: int = 4) -> dict[str, object]:
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"models": [{"name": name, "calls_us": calls_us}]}))
        return {
            "backend": "AccelTensor", "model": str(path), "device": "sim", "max_time_per_fc": 1e-6, "n_task": n_task,
            "instance_num": 2,
        }  # fmt: skip

    return write


def test_requests_run_on_the_device(device, net):
    expected = SimModel(calls_us=[1, 2]).reference({"x": x()})["y"]
    with hami.pipe(net("net", 1, 2)) as pipe:
        assert np.array_equal(pipe({"data": x()})["result"], expected)
        assert np.array_equal(pipe({"data": {"x": x()}})["result"], expected)
        assert np.array_equal(pipe({"data": x()[0]})["result"], expected[0])
        results = pipe([{"data": x(i, i, i, i)} for i in range(40)])
        for i, result in enumerate(results):
            assert np.array_equal(result["result"], SimModel(calls_us=[1, 2]).reference({"x": x(i, i, i, i)})["y"])


def test_a_wrong_request_fails_alone(device, net):
    with hami.pipe(net("net", 1)) as pipe:
        for wrong in ({"data": x().astype(np.float64)}, {"data": "text"}, {"data": {"z": x()}}):
            with pytest.raises(InputError):
                pipe(wrong)
        device.fault_rate = 1
        with pytest.raises(DeviceError):
            pipe({"data": x()})
        device.fault_rate = 0
        assert pipe({"data": x()})["result"].shape == (1, 4)


def test_an_urgent_request_preempts_a_running_one(device, net):
    began = threading.Event()
    device.on_call = lambda name, segment, core: began.set()
    with hami.pipe(net("low", *[2000] * 200)) as low, hami.pipe(net("urgent", 10)) as urgent:
        future = low.submit({"data": x()})
        assert began.wait(60)
        urgent({"data": x(), "priority": 255})
        assert not future.done()
        future.cancel()
    assert ("urgent", 0, 0) in device.history


def test_a_cancelled_request_ends_its_task(device, net):
    began = threading.Event()
    device.on_call = lambda name, segment, core: began.set()
    with hami.pipe(net("net", 3600e6)) as pipe:  # an hour
        future = pipe.submit({"data": x()})
        assert began.wait(60)
        assert future.cancel()
        with pytest.raises(CancelledError):
            future.result(60)
    assert not engine_of(device)._scheduler.ready


def test_a_deadline_that_cannot_be_met_starts_nothing(device, net):
    with hami.pipe(net("net", 3600e6)) as pipe, pytest.raises(hami.DeadlineExceeded):
        pipe({"data": x(), "timeout": 0.5})
    assert device.history == []


def test_requests_wait_for_slots_and_lost_slots_are_reported(device, net):
    engine_of(device, call_timeout=0.001)
    with hami.pipe(net("net", 1, n_task=2)) as pipe:
        device.hang_rate = 1
        for _ in range(2):
            with pytest.raises(SlotLost, match="did not answer function-call"):
                pipe({"data": x()})
        device.hang_rate = 0
        with pytest.raises(SlotLost, match="all of them are lost"):
            pipe({"data": x()})


def test_nodes_with_equal_parameters_share_the_model(device, net):
    node = net("net", 1, n_task=1)
    with hami.pipe(node) as first, hami.pipe(node) as second:
        futures = [pipe.submit({"data": x()}) for pipe in (first, second) for _ in range(20)]
        assert all(future.result(60)["result"].shape == (1, 4) for future in futures)


def test_a_missing_model_is_a_configuration_error(net):
    with pytest.raises(hami.ConfigError):
        hami.pipe({**net("net", 1), "model": "missing.json"})
    with pytest.raises(hami.ConfigError, match="no device"):
        hami.pipe({**net("net", 1), "device": "nope"})


def test_a_slot_with_a_hung_call_is_lost_also_if_the_caller_of_its_request_has_left(monkeypatch, net):
    runs = threading.Semaphore(0)
    device = SimDevice(abort=False, hang_rate=1, on_call=lambda *_: runs.release())
    monkeypatch.setitem(platforms._devices, "sim", device)
    engine_of(device, call_timeout=0.1)
    with hami.pipe(net("net", 1, n_task=2)) as pipe:
        for _ in range(2):
            future = pipe.submit({"data": x()})
            assert runs.acquire(timeout=60)
            future.cancel()
        device.hang_rate = 0
        with pytest.raises(SlotLost, match="all of them are lost"):
            pipe({"data": x()})

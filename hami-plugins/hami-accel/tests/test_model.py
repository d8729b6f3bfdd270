"""AccelModel: slots, tickets, checks, and what a wrong call raises."""

from __future__ import annotations

import asyncio
import io
import logging
import pickle
import sys
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor

import hami
import numpy as np
import pytest
from conftest import ONE_BY_ONE, x

from hami_accel import (
    AccelModel,
    DeviceError,
    InputError,
    ModelClosed,
    Platform,
    Quantization,
    SlotError,
    SlotLost,
    TensorSpec,
    WaitTimeout,
    engine_of,
)
from hami_accel.sim import SimDevice, SimModel

NET = SimModel("net", [100, 200, 300])


def expected(model: SimModel, values: np.ndarray) -> np.ndarray:
    return model.reference({"x": values})["y"]


@pytest.fixture(params=["virtual", "real"])
def device(request):
    return SimDevice(clock=request.param)


@pytest.fixture
def model(device):
    with AccelModel(NET, 4, device=device, max_time_per_fc=ONE_BY_ONE) as model:
        yield model


def test_the_program_of_the_documents_runs(tmp_path, capsys):
    path = tmp_path / "net.json"
    path.write_text('{"models": [{"name": "a", "calls_us": [100, 200]}, {"name": "b"}]}')
    with AccelModel(path, n_task=4, select=0, device="sim", max_time_per_fc=500) as m:
        assert m.summary()["models"] == ["a", "b"]
        m.s()
        m.dirty_run(10)
        m.t()
        assert m.benchmark(5)["min_us"] >= 300
        ticket = m.start(x(), slot=2, priority=254, deadline=5)
        assert m.is_busy(2)
        y = m.wait(ticket, timeout=60)
        assert not m.is_busy(2)
        assert np.array_equal(m(x()), y)
        assert np.array_equal(m.infer(x(), priority=255), y)
        states = x()
        m.bind(2, "x", states)
        m.set_scheduling(cores=[0], priority=10, slot=2)
        assert m.start(slot=2).priority == 10
        assert np.array_equal(m.wait(2), y)
    text = capsys.readouterr().out
    assert "* 0  a" in text
    assert "  1  b" in text
    assert "a: 10 runs, mean" in text
    assert "\x1b" not in text
    assert Platform().summary()["sim"]["abort"] is True


def test_only_a_terminal_gets_colour(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def printed(stream: io.StringIO) -> str:
        monkeypatch.setattr(sys, "stdout", stream)
        with AccelModel(NET, device=SimDevice(clock="virtual")) as model:
            model.s()
        return stream.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = printed(Terminal())
    assert coloured.startswith("\x1b[1m")
    plain = printed(io.StringIO())
    assert plain == coloured.replace("\x1b[1m", "").replace("\x1b[0m", "")
    monkeypatch.setenv("NO_COLOR", "1")
    assert printed(Terminal()) == plain


def test_loading_prints_nothing_and_release_logs_the_name(capsys, caplog):
    caplog.set_level(logging.INFO, "hami_accel")
    AccelModel(NET, device=SimDevice(clock="virtual")).close()
    assert capsys.readouterr() == ("", "")
    assert [record.getMessage() for record in caplog.records] == ["released net"]


def test_wait_returns_the_outputs_of_its_task(model):
    tickets = [model.start(x(i, 0, 0, 0)) for i in range(4)]
    for i in (2, 0, 3, 1):
        assert np.array_equal(model.wait(tickets[i]), expected(NET, x(i, 0, 0, 0)))


def test_outputs_are_not_changed_by_the_next_task(model):
    first = model(x(1, 1, 1, 1))
    kept = first.copy()
    model(x(5, 5, 5, 5))
    assert np.array_equal(first, kept)


@pytest.mark.parametrize("slot", [-1, 4, 1.5, "0"])
def test_a_slot_out_of_range_is_named(model, slot):
    with pytest.raises(SlotError, match="slot"):
        model.start(x(), slot=slot)
    assert np.array_equal(model(x()), expected(NET, x()))


@pytest.mark.parametrize("priority", [-2, 256, 1.5])
def test_a_wrong_priority_is_named(model, priority):
    for call in (lambda: model.start(x(), priority=priority), lambda: model.set_scheduling(priority=priority)):
        with pytest.raises(InputError, match=r"priority must be 0 to 255"):
            call()
    assert not any(model.is_busy(slot) for slot in range(4))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (x().astype(np.float64), "dtype differs"),
        (x()[0], "ndim differs"),
        (np.zeros((1, 5), np.float32), "shape differs"),
        ([x(), x()], r"takes 1 inputs \['x'\], got 2"),
        ({"z": x()}, r"the inputs are \['x'\], got \['z'\]"),
        ({}, r"the inputs are \['x'\]"),
        ("text", "takes an array"),
        ([["a"]], "numbers that do not fit"),
    ],
)
def test_a_wrong_input_starts_nothing(model, wrong, message):
    with pytest.raises(InputError, match=message):
        model.start(wrong, slot=1)
    assert not model.is_busy(1)
    assert np.array_equal(model.wait(model.start(x(), slot=1)), expected(NET, x()))


def test_unchecked_skips_the_type_but_not_the_size(device):
    with AccelModel(NET, device=device, unchecked=True) as model:
        assert np.array_equal(model(x().view(np.int32)), expected(NET, x()))
        with pytest.raises(InputError, match=r"takes 16 contiguous bytes .* got 20 bytes"):
            model(np.zeros((1, 5), np.float32))
        with pytest.raises(InputError, match="strides"):
            model(np.zeros((1, 8), np.int32)[:, ::2])


def test_strided_inputs_are_copied(model):
    wide = np.arange(8, dtype=np.float32).reshape(1, 8)
    assert np.array_equal(model(wide[:, ::2]), expected(NET, wide[:, ::2]))


def test_a_busy_start_an_idle_wait_and_a_double_wait_raise(model):
    ticket = model.start(x(), slot=0)
    with pytest.raises(SlotError, match="slot 0 is running"):
        model.start(x(), slot=0)
    model.wait(ticket)
    with pytest.raises(SlotError, match="has waited"):
        model.wait(ticket)
    with pytest.raises(SlotError, match="slot 0 is idle"):
        model.wait(0)
    again = model.start(x(), slot=0)
    with pytest.raises(SlotError, match="has waited"):
        model.wait(ticket)  # of the task before
    model.wait(again)


def test_no_idle_slot_raises(model):
    tickets = [model.start(x()) for _ in range(4)]
    with pytest.raises(SlotError, match="none of 4 slots is idle"):
        model.start(x())
    for ticket in tickets:
        model.wait(ticket)


def test_of_two_waiting_threads_one_raises(gate):
    with AccelModel(NET, device=gate.device) as model:
        ticket = model.start(x())
        assert gate.entered.acquire(timeout=60)
        with ThreadPoolExecutor(2) as pool:
            waits = [pool.submit(model.wait, ticket) for _ in range(2)]
            assert isinstance(next(w for w in waits if _fails_first(waits, w)).exception(60), SlotError)
            gate.open()
        assert sorted(type(w.exception()).__name__ for w in waits) == ["NoneType", "SlotError"]


def _fails_first(waits, wait) -> bool:
    from concurrent.futures import FIRST_COMPLETED
    from concurrent.futures import wait as wait_for

    return wait in wait_for(waits, 60, FIRST_COMPLETED).done


def test_a_wait_that_times_out_leaves_the_task_running(gate):
    with AccelModel(NET, device=gate.device) as model:
        ticket = model.start(x())
        with pytest.raises(WaitTimeout, match=r"is not done after 0\.001 s"):
            model.wait(ticket, timeout=0.001)
        assert model.is_busy(0)
        gate.open()
        assert np.array_equal(model.wait(ticket, 60), expected(NET, x()))


def test_wait_releases_the_gil(gate):
    with AccelModel(NET, device=gate.device) as model:
        ticket = model.start(x())
        opener = threading.Thread(target=lambda: (gate.entered.acquire(), gate.open()))
        opener.start()
        assert np.array_equal(model.wait(ticket, 60), expected(NET, x()))
        opener.join()


@pytest.mark.parametrize(
    ("seconds", "always_ends", "inline"), [(1e-6, True, True), (1.0, True, False), (1e-6, False, False)]
)
def test_a_task_shorter_than_a_thread_change_runs_in_start_if_it_cannot_hang(seconds, always_ends, inline):
    threads = []

    class Device(SimDevice):
        def load(self, source, options):
            model = super().load(source, options)
            model.expected_s, model.always_ends = seconds, always_ends
            return model

    device = Device(on_call=lambda *_: threads.append(threading.current_thread()))
    with AccelModel(SimModel("net", [1]), device=device) as model:
        ticket = model.start(x())
        assert not inline or ticket.done()
        model.wait(ticket, timeout=60)  # a wait with a limit does not run the task itself
    assert (threads == [threading.current_thread()]) is inline


@pytest.mark.parametrize(
    "follow", ["nothing", "wait with a limit", "callback", "urgent", "urgent after another", "deadline"]
)
def test_a_task_runs_without_a_waiting_caller_although_callers_replaced_the_worker(follow):
    threads = []
    device = SimDevice(on_call=lambda *_: threads.append(threading.current_thread()))
    net = SimModel("net", [1])
    with AccelModel(net, device=device) as model, AccelModel(net, device=device) as other:
        for _ in range(100_000):
            model.wait(model.start(x()))
            worker = model._engine._workers[0]
            if worker.napping:
                break
        else:
            pytest.skip("the worker was always faster than the caller")
        assert threading.current_thread() in threads
        if follow == "urgent after another":
            other.start(x())
        ticket = model.start(
            x(), priority=255 if follow.startswith("urgent") else 0, deadline=60 if follow == "deadline" else None
        )
        ended = threading.Semaphore(0)
        if follow == "callback":
            ticket.add_done_callback(lambda _: ended.release())
            assert ended.acquire(timeout=60)
        elif follow == "wait with a limit":
            assert model.wait(ticket, 60).shape == (1, 4)
        else:
            assert ticket._task.wait(60)  # not model.wait, which would run the task
        assert threads[-1] is not threading.current_thread()


def test_a_cancelled_task_raises_and_frees_its_slot(gate):
    with AccelModel(NET, 2, device=gate.device) as model:
        running, queued = model.start(x()), model.start(x())
        assert gate.entered.acquire(timeout=60)
        assert queued.cancel()
        assert not queued.cancel()
        with pytest.raises(CancelledError):
            model.wait(queued)
        assert running.cancel()
        assert not running.done()
        gate.open()
        with pytest.raises(CancelledError):
            running.wait(60)
        assert not running.cancel()
        assert not model.is_busy(0)
        assert not model.is_busy(1)


def test_await_returns_the_outputs(model):
    async def main():
        first, second = model.start(x()), model.start(x(2, 2, 2, 2), priority=255)
        return await second, await first

    second, first = asyncio.run(main())
    assert np.array_equal(first, expected(NET, x()))
    assert np.array_equal(second, expected(NET, x(2, 2, 2, 2)))


def test_a_cancelled_await_cancels_the_task(gate):
    async def main(model):
        ticket = model.start(x())
        waiting = asyncio.ensure_future(_result(ticket))
        await asyncio.to_thread(gate.entered.acquire)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.open()
        ticket._task.wait(60)
        return ticket

    with AccelModel(NET, device=gate.device, n_task=2) as model:  # the first slot may still end its task
        assert isinstance(asyncio.run(main(model))._task.error, CancelledError)
        gate.open()
        assert np.array_equal(model(x()), expected(NET, x()))


async def _result(ticket):
    return await ticket


def test_use_after_close_raises(model):
    model.close()
    for call in (lambda: model.start(x()), lambda: model(x()), lambda: model.is_busy(0), lambda: model.wait(0)):
        with pytest.raises(ModelClosed, match="is closed"):
            call()
    model.close()


def test_closing_ends_running_and_queued_tasks(gate):
    model = AccelModel(NET, 2, device=gate.device)
    tickets = [model.start(x()), model.start(x())]
    assert gate.entered.acquire(timeout=60)
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(model.close)
        with pytest.raises(ModelClosed, match="closed while"):
            model.wait(tickets[1], 60)
        gate.open()
        closing.result(60)
    with pytest.raises(ModelClosed, match="closed while"):
        model.wait(tickets[0], 60)


@pytest.mark.parametrize("wrong", ["1", [1], float("nan"), 1j], ids=repr)
@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_a_time_that_is_not_a_number_is_named(wrong, clock):
    with AccelModel(SimModel("net", [100]), 2, device=SimDevice(clock=clock)) as model:
        ticket = model.start(x())
        for call in (
            lambda: model.infer(x(), timeout=wrong),
            lambda: model.infer(x(), deadline=wrong),
            lambda: model.start(x(), deadline=wrong),
            lambda: ticket.wait(wrong),
        ):
            with pytest.raises(InputError, match=r"net: (timeout|deadline) must be a number of seconds, got"):
                call()
        ticket.wait(10**400)
        model.infer(x(), deadline=10**400, timeout=10**400)
        model.infer(x(), timeout=np.float32(60))
        for cores in (3, [[0]]):
            with pytest.raises(InputError, match="cores must be some of 0 to 0"):
                model.set_scheduling(cores)
        with pytest.raises(hami.ConfigError, match="max_time_per_fc must be microseconds"):
            AccelModel(SimModel("net", [100]), device=SimDevice(), max_time_per_fc=wrong)
        assert model.summary()["slots"] == ["idle", "idle"]


def test_an_impossible_deadline_is_rejected_before_the_start(virtual):
    model = virtual(100, 200)
    for deadline in (0, -1, 0.0002, -(10**400)):
        with pytest.raises(hami.DeadlineExceeded, match="cannot be met"):
            model.start(x(), deadline=deadline)
    assert model.device.history == []
    assert model.infer(x(), deadline=0.000301).shape == (1, 4)


def test_a_deadline_that_passes_in_the_queue_ends_the_task(virtual):
    model = virtual(100, 200)
    blocker, late = model.start(x()), model.start(x(), deadline=0.00031)
    model.wait(blocker)
    with pytest.raises(hami.DeadlineExceeded, match="after 0 of 2 function-calls"):
        model.wait(late)
    assert not model.is_busy(1)


def test_a_deadline_in_real_time_ends_a_queued_task_at_once(gate):
    with AccelModel(SimModel("net", [1]), 2, device=gate.device) as model:
        blocker, late = model.start(x()), model.start(x(), deadline=0.001)
        with pytest.raises(hami.DeadlineExceeded):
            model.wait(late, 60)
        gate.open()
        model.wait(blocker, 60)


def test_an_awaited_deadline_ends_a_queued_task(gate):
    with AccelModel(SimModel("net", [1]), 2, device=gate.device) as model:
        blocker, late = model.start(x()), model.start(x(), deadline=0.001)
        with pytest.raises(hami.DeadlineExceeded):
            asyncio.run(_result(late))
        gate.open()
        model.wait(blocker, 60)


@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_a_device_error_keeps_its_code(clock):
    with AccelModel(NET, device=SimDevice(clock=clock, fault_rate=1)) as model:
        with pytest.raises(DeviceError, match="failed with code -5") as caught:
            model(x())
        assert caught.value.code == pickle.loads(pickle.dumps(caught.value)).code == -5
        model.device.fault_rate = 0
        assert np.array_equal(model(x()), expected(NET, x()))


@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_a_device_that_never_answers_loses_one_slot(clock):
    device = SimDevice(clock=clock, hang_rate=1)
    engine_of(device, call_timeout=0.001)
    with AccelModel(NET, 2, device=device) as model:
        with pytest.raises(SlotLost, match=r"did not answer function-call 1 of 1 within 0\.001 s"):
            model.wait(model.start(x(), slot=0), 60)
        device.hang_rate = 0
        with pytest.raises(SlotError, match="slot 0 is lost"):
            model.start(x(), slot=0)
        for _ in range(3):
            assert np.array_equal(model(x()), expected(NET, x()))
        assert model.summary()["slots"] == ["lost", "idle"]


def test_a_hang_without_a_limit_still_returns_from_wait(virtual):
    device = SimDevice(clock="virtual", hang_rate=1)
    engine_of(device, call_timeout=None)
    model = virtual(100, device=device)
    with pytest.raises(WaitTimeout):
        model.wait(model.start(x()), timeout=1)
    assert device.clock.now() == 1


def test_bound_buffers_are_used_without_a_copy(model):
    given, taken = x(), np.zeros((1, 4), np.float32)
    model.bind(3, "x", given)
    model.bind(3, "y", taken)
    given[:] = 7
    assert model.wait(model.start(slot=3)) is taken
    assert np.array_equal(taken, expected(NET, given))


def test_calls_that_name_no_slot_take_one_with_bound_buffers_last(model):
    given = np.full((1, 4), 7, np.float32)
    for slot in range(3):
        model.bind(slot, "x", given)
    tickets = [model.start(x())]
    with pytest.raises(InputError, match="takes 0 inputs"):
        model.start(x())
    tickets += [model.start() for _ in range(3)]
    assert tickets[0].slot == 3
    assert sorted(ticket.slot for ticket in tickets[1:]) == [0, 1, 2]
    assert np.array_equal(model.wait(tickets[0]), expected(NET, x()))
    for ticket in tickets[1:]:
        assert np.array_equal(model.wait(ticket), expected(NET, given))


def test_buffers_with_dlpack_are_bound_without_a_copy(model):
    class Buffer:
        def __init__(self) -> None:
            self.array = x()

        def __dlpack__(self, **settings):
            return self.array.__dlpack__(**settings)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    given, taken = Buffer(), Buffer()
    model.bind(3, "x", given)
    model.bind(3, "y", taken)
    given.array[:] = 7
    model.wait(model.start(slot=3))
    assert np.array_equal(taken.array, expected(NET, given.array))


def test_a_wrong_buffer_is_not_bound(model):
    read_only = x()
    read_only.flags.writeable = False
    for name, buffer, message in [
        ("z", x(), r"no input or output 'z'"),
        ("x", np.zeros((1, 8), np.float32)[:, ::2], "strides"),
        ("x", x().view(np.int32), "dtype differs"),
        ("y", read_only, "read-only"),
        ("x", 3, "takes an array"),
    ]:
        with pytest.raises(InputError, match=message):
            model.bind(0, name, buffer)
    ticket = model.start(x(), slot=0)
    with pytest.raises(SlotError, match="slot 0 is running"):
        model.bind(0, "x", x())
    assert np.array_equal(model.wait(ticket), expected(NET, x()))


def test_wrong_arguments_of_the_model_are_named():
    device = SimDevice(clock="virtual")
    for settings, message in [
        ({"n_task": 0}, "n_task must be"),
        ({"select": 1}, "select must be a number below 1"),
        ({"select": "other"}, "select must be"),
        ({"max_time_per_fc": -1}, "max_time_per_fc must be"),
        ({"device": "nope"}, "no device 'nope'; installed devices are .*sim"),
    ]:
        with pytest.raises(hami.ConfigError, match=message):
            AccelModel(NET, **{"device": device, **settings})
    with AccelModel(NET, device=device) as model, pytest.raises(InputError, match="cores must be some of 0 to 0"):
        model.set_scheduling(cores=[1])


@pytest.mark.parametrize("text", ["", "[]", '{"models": [{}]}', '{"models": [{"name": "a", "calls_us": "x"}]}'])
def test_a_file_that_is_not_a_simulated_model_is_named(tmp_path, text):
    (tmp_path / "net.json").write_text(text)
    with pytest.raises(hami.ConfigError, match="is not a JSON file of simulated models"):
        AccelModel(tmp_path / "net.json", device=SimDevice())
    with pytest.raises(hami.ConfigError, match="cannot be read"):
        AccelModel(tmp_path / "missing.json", device=SimDevice())


def test_quantised_inputs_take_real_values_or_integers():
    spec = TensorSpec("x", np.dtype(np.int8), (1, 4), "NC", Quantization(0.5, 1))
    net = SimModel("q", [10], [spec], [spec._replace(name="y", quantization=Quantization(0.25))])
    with AccelModel(net, device=SimDevice(clock="virtual")) as model:
        from_reals = model([[0.5, 1.0, -1.0, 1000.0]])
        assert np.array_equal(from_reals, model(np.array([[2, 3, -1, 127]], np.int8)))
        assert np.allclose(model.outputs[0].dequantize(from_reals), [[2, 2.5, 0.5, 31.75]])


def test_28_slots_with_waits_out_of_order_from_8_threads_give_the_reference():
    inputs = np.random.default_rng(0).standard_normal((100, 1, 4)).astype(np.float32)
    net = SimModel("net", [1, 2, 3])
    results: dict[int, np.ndarray] = {}

    def run(model: AccelModel, numbers: list[int]) -> None:
        for start in range(0, len(numbers), 3):
            tickets = [(i, model.start(inputs[i], priority=i % 256)) for i in numbers[start : start + 3]]
            for i, ticket in reversed(tickets):
                results[i] = model.wait(ticket, 60)

    device = SimDevice(cores=2)
    with AccelModel(net, 28, device=device, max_time_per_fc=ONE_BY_ONE) as model, ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(run, model, list(range(first, 100, 8))) for first in range(8)]:
            done.result(60)
    assert len(results) == 100
    for i, y in results.items():
        assert np.array_equal(y, expected(net, inputs[i]))

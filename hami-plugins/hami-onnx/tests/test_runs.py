"""A run that no caller waits for ends early, and `memory` says what happens to memory that runs have used."""

from __future__ import annotations

import concurrent.futures
import time

import hami
import numpy as np
import pytest
from conftest import save
from onnx import TensorProto, helper

ENDLESS = 1e12  # turns; a million take about a second
ROW = (TensorProto.FLOAT, ["n", 1])


@pytest.fixture
def turns(tmp_path):
    """y = x + x, after as many turns of a loop as the largest value of x says."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go_on"]), helper.make_node("Add", ["sum", "sum"], ["next"])],
        "turn",
        [
            value("turn", TensorProto.INT64, []),
            value("go", TensorProto.BOOL, []),
            value("sum", TensorProto.FLOAT, [1]),
        ],
        [value("go_on", TensorProto.BOOL, []), value("next", TensorProto.FLOAT, [1])],
    )
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["largest"], keepdims=0),
        helper.make_node("Cast", ["largest"], ["turns"], to=TensorProto.INT64),
        helper.make_node("Loop", ["turns", "yes", "zero"], ["nothing"], body=body),
        helper.make_node("Add", ["x", "x"], ["twice"]),
        helper.make_node("Add", ["twice", "nothing"], ["y"]),
    ]
    constants = {"yes": np.bool_(True), "zero": np.zeros(1, np.float32)}
    return str(save(tmp_path / "turns.onnx", nodes, {"x": ROW}, {"y": ROW}, constants))


def row(value):
    return {"data": np.full((1, 1), value, np.float32)}


def test_a_run_ends_when_its_caller_has_a_timeout(pipe, turns):
    running = pipe(model=turns, batched=False)
    for _ in range(2):
        with pytest.raises(hami.DeadlineExceeded):
            running(row(ENDLESS), timeout=0.03)
    assert running(row(3), timeout=20)["result"].tolist() == [[6]]  # the only instance is free again


def until_it_runs(running):
    until = time.monotonic() + 20
    while running.stats()["default"].running == 0:
        assert time.monotonic() < until


def beside_endless_runs(pipe, turns, *, lasting=1, **parameters):
    """Return a pipe in which so many runs do not end, and those runs."""
    running = pipe(model=turns, batched=False, instance_num=lasting + 1, **parameters)
    return running, [running.submit(row(ENDLESS)) for _ in range(lasting)]


def busy_runs(running):
    assert running(row(3), timeout=20)["result"].tolist() == [[6]]
    return running.stats()["default"].counters.get("busy_runs", 0)


@pytest.mark.parametrize(("threads", "lasting"), [(2, 1), (3, 1), (4, 2)])
def test_a_run_beside_others_has_busy_threads(pipe, turns, threads, lasting):
    running, endless = beside_endless_runs(pipe, turns, lasting=lasting, threads=threads, busy_threads=1)
    until = time.monotonic() + 20
    while busy_runs(running) == 0:  # the others have not begun yet
        assert time.monotonic() < until
    for future in endless:
        future.cancel()


@pytest.mark.parametrize(
    "parameters",
    [
        {"threads": 2},
        {"threads": 1, "busy_threads": 1},
        {"threads": 2, "busy_threads": 4},
        {"threads": 4, "busy_threads": 1},
        {"threads": 2, "busy_threads": 1, "profile": "times.json"},
    ],
)
def test_up_to_half_as_many_runs_as_threads_have_all_threads(pipe, turns, parameters, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    running, (endless,) = beside_endless_runs(pipe, turns, **parameters)
    until_it_runs(running)
    assert [busy_runs(running) for _ in range(5)] == [0] * 5
    endless.cancel()


def test_a_run_ends_when_its_caller_cancels(pipe, turns):
    running = pipe(model=turns, batched=False)
    lost = running.submit(row(ENDLESS))
    until_it_runs(running)
    assert lost.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        lost.result(20)
    assert running(row(3), timeout=20)["result"].tolist() == [[6]]


def test_a_caller_that_leaves_a_batch_takes_no_answer_from_the_others(pipe, turns):
    running = pipe(model=turns, batched=True, max=2, min=2, batching_timeout=10_000)
    lost, kept = running.submit(row(50_000)), running.submit(row(5))
    until_it_runs(running)
    lost.cancel()
    assert kept.result(20)["result"].tolist() == [[10]]
    both = [running.submit(row(ENDLESS)), running.submit(row(5))]
    until_it_runs(running)
    assert [future.cancel() for future in both] == [True, True]
    pair = [running.submit(row(value)) for value in (1, 2)]
    assert [future.result(20)["result"].tolist() for future in pair] == [[[2]], [[4]]]


@pytest.mark.parametrize("memory", ["arena", "shrink", "none"])
@pytest.mark.parametrize("kind", ["double", "words"])
def test_models_run_with_each_kind_of_memory(pipe, models, memory, kind):
    data = np.array(["a"], object) if kind == "words" else np.ones((1, 2), np.float32)
    running = pipe(model=str(getattr(models, kind)()), memory=memory)
    for _ in range(3):
        assert (
            np.asarray(running({"data": data})["result"]).tolist() == (data if kind == "words" else data * 2).tolist()
        )


def test_an_unknown_kind_of_memory_is_refused(models):
    with pytest.raises(hami.ConfigError, match=r'"memory" of OnnxTensor takes "arena", "shrink" or "none"'):
        hami.pipe({"backend": "OnnxTensor", "model": str(models.double()), "memory": "all"})

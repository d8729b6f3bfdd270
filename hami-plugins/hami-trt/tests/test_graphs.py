"""CUDA graphs: captured for each set of input shapes, replayed on fixed memory, and left out where that fails."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import hami
import numpy as np
import pytest
from fake_tensorrt import tensor

from hami_trt import _graphs

TWO_INPUTS_AND_OUTPUTS = {
    "tensors": {
        "a": tensor("INPUT"),
        "b": tensor("INPUT"),
        "sum": tensor("OUTPUT"),
        "difference": tensor("OUTPUT"),
    },
    "profiles": [{name: [(1, 2), (2, 2), (4, 2)] for name in "ab"}],
    "program": "sum and difference",
}
ALONE = "IoC[LoadTensorrtEngine,TensorrtInferTensor;S[GpuTensor,TensorrtInferTensor]]"


def rows(*values: float) -> np.ndarray:
    return np.array([[value] * 2 for value in values], np.float32)


def ask(pipe, *values: float) -> list[float]:
    request = {"data": rows(*values), "request_size": len(values)}
    pipe(request)
    return request["result"][:, 0].tolist()


def test_the_second_run_of_a_shape_is_captured_and_later_ones_replay_it(pipe, engine, fake, driver):
    doubled = pipe(ALONE, model=engine(), max=4, batched=False)
    launches = driver.fake_graph_launches()
    assert ask(doubled, 1) == [2]
    assert (fake.runs, driver.fake_graph_launches() - launches) == (1, 0)
    for value in range(2, 7):
        assert ask(doubled, value) == [2 * value]
        assert (fake.runs, driver.fake_graph_launches() - launches) == (3, value - 1)  # a run, then the capture


@pytest.mark.parametrize("graph", [True, False])
def test_nothing_is_used_again_before_its_work_is_done(engine, fake, driver, monkeypatch, graph):
    """Work runs as late as CUDA allows; the results are read after all requests were submitted."""
    monkeypatch.setenv("FAKE_CUDA_LATE", "1")
    config = {"backend": ALONE, "model": engine(), "max": 4, "graph": graph}
    with hami.pipe(config) as pipe, hami.pipe("hami-cuda::CpuTensor") as back:
        results = []
        for number in range(24):
            request = {"data": rows(*range(number, number + 1 + number % 4)), "request_size": 1 + number % 4}
            pipe(request)
            results.append(request["result"])
        for number, result in enumerate(results):
            values = hami.to_numpy(back({"data": result})["result"])[:, 0].tolist()
            assert values == [2 * value for value in range(number, number + 1 + number % 4)]
    assert driver.cuCtxSynchronize() == 0


def test_a_failed_capture_leaves_no_work_behind(engine, fake, driver, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_LATE", "1")
    monkeypatch.setenv("FAKE_CUDA_CAPTURE", "900")
    with hami.pipe({"backend": ALONE, "model": engine(), "max": 4}) as pipe, hami.pipe("hami-cuda::CpuTensor") as back:
        for value in range(6):
            result = pipe({"data": rows(value), "request_size": 1})["result"]
            assert hami.to_numpy(back({"data": result})["result"])[:, 0].tolist() == [2 * value]
    assert driver.cuCtxSynchronize() == 0


def test_each_shape_has_a_graph_on_the_same_memory(pipe, engine, fake, driver):
    doubled = pipe(ALONE, model=engine(), max=4, batched=False)
    allocations = []
    for turn in range(5):
        for count in (1, 3, 4, 2):
            values = [turn + 10 * number for number in range(count)]
            assert ask(doubled, *values) == [2 * value for value in values]
        allocations.append(driver.fake_allocations())
    assert driver.fake_graphs() == 4
    assert fake.runs == 3 * 4
    assert len(set(allocations[1:])) == 1  # of the context, of the input and of the output
    assert allocations[1] == allocations[0] + 3


def test_results_of_a_graph_are_not_changed_by_its_next_run(engine):
    with hami.pipe({"backend": ALONE, "model": str(engine())}) as pipe, hami.pipe("hami-cuda::CpuTensor") as back:
        results = [pipe({"data": rows(value)})["result"] for value in range(6)]
        copied = [hami.to_numpy(back({"data": result})["result"]).tolist() for result in results]
    assert copied == [[[2 * value] * 2] for value in range(6)]


def test_several_inputs_and_outputs(pipe, engine, driver):
    runner = pipe("TensorrtTensor", model=engine(**TWO_INPUTS_AND_OUTPUTS))
    launches = driver.fake_graph_launches()
    for value in range(4):
        result = runner({"data": {"a": rows(value), "b": rows(1)}})["result"]
        assert result["sum"].tolist() == [[value + 1] * 2]
        assert result["difference"].tolist() == [[value - 1] * 2]
    assert driver.fake_graph_launches() == launches + 3


def test_strided_data_is_copied_into_the_memory_of_the_graph(pipe, engine, on_device):
    runner = pipe("IoC[LoadTensorrtEngine,TensorrtInferTensor;TensorrtInferTensor]", model=engine())
    many = on_device(np.arange(16, dtype=np.float32).reshape(4, 4))
    for _ in range(3):
        assert runner({"data": many[1:2, ::2]})["result"].tolist() == [[8, 12]]
        assert runner({"data": many[2:3, 1:3]})["result"].tolist() == [[18, 20]]


def test_graph_false_turns_it_off(pipe, engine, driver):
    doubled = pipe("TensorrtTensor", model=engine(), graph=False)
    launches = driver.fake_graph_launches()
    assert [ask(doubled, value) for value in range(4)] == [[2 * value] for value in range(4)]
    assert driver.fake_graph_launches() == launches


def test_beyond_the_limit_other_shapes_run_without_a_graph(pipe, engine, fake, driver, monkeypatch):
    monkeypatch.setattr(_graphs, "MAX_GRAPHS", 2)
    doubled = pipe(ALONE, model=engine(), max=4, batched=False)
    for _ in range(4):
        for count in (1, 2, 3, 4):
            assert ask(doubled, *range(count)) == [2 * value for value in range(count)]
    assert driver.fake_graphs() == 2
    assert fake.runs == 2 * 3 + 2 * 4


@pytest.mark.parametrize("instances", [1, 2])
def test_a_capture_that_fails_is_said_once_and_the_engine_runs_without(
    pipe, engine, driver, monkeypatch, caplog, instances
):
    monkeypatch.setenv("FAKE_CUDA_CAPTURE", "901")
    doubled = pipe("TensorrtTensor", model=engine(), instance_num=instances)
    launches = driver.fake_graph_launches()
    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda value: ask(doubled, value), range(40))) == [[2 * v] for v in range(40)]
    assert [message for message in caplog.messages if "CUDA graphs" in message] == [
        "TensorrtInferTensor: the engine runs without CUDA graphs from now on: TensorrtInferTensor: cannot capture a "
        "graph: CUDA_ERROR_UNKNOWN: unknown error"
    ]
    assert (driver.fake_graph_launches(), driver.fake_graphs()) == (launches, 0)


def test_without_memory_for_a_graph_the_engine_runs_without(pipe, engine, driver, caplog):
    most = 1 << 20
    squared = engine(
        tensors={"x": tensor("INPUT"), "y": tensor("OUTPUT", shape=(-1, -1))},
        profiles=[{"x": [(1, 2), (1, 2), (most, 2)]}],
        program="squared",
    )
    opened = pipe("TensorrtTensor", model=squared)
    allocations = []
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert opened({"data": rows(1)})["result"].tolist() == [[0]]
            allocations.append(driver.fake_allocations())
    (message,) = (message for message in caplog.messages if "CUDA graphs" in message)
    assert f"cannot allocate {most * most * 4} bytes on the device" in message
    assert len(set(allocations)) == 1


def test_an_engine_whose_contexts_need_a_profile_each_runs_without(pipe, engine, fake, caplog):
    fake.shares_profiles = False
    doubled = pipe("TensorrtTensor", model=engine())
    with caplog.at_level(logging.WARNING):
        assert [ask(doubled, value) for value in range(3)] == [[0], [2], [4]]
    (message,) = (message for message in caplog.messages if "CUDA graphs" in message)
    assert "Profile 0 has been chosen for another IExecutionContext." in message


def test_libraries_before_tensorrt_10_make_contexts_without_memory_in_their_way(pipe, engine, fake, driver):
    del fake.ExecutionContextAllocationStrategy
    doubled = pipe("TensorrtTensor", model=engine())
    launches = driver.fake_graph_launches()
    assert [ask(doubled, value) for value in range(3)] == [[0], [2], [4]]
    assert driver.fake_graph_launches() == launches + 2


def test_a_failed_run_fails_its_request_and_leaves_the_graphs(pipe, engine, fake, driver):
    doubled = pipe(ALONE, model=engine(), max=4, batched=False)
    assert [ask(doubled, value) for value in range(2)] == [[0], [2]]
    fake.failures["execute_async_v3"] = "Error Code 1: Cuda Runtime (invalid argument)"
    with pytest.raises(hami.RequestError, match="failed to run the engine on float32"):
        ask(doubled, 1, 2)
    assert ask(doubled, 3) == [6]  # its graph does not ask the library
    fake.failures.clear()
    assert ask(doubled, 1, 2) == [2, 4]


def test_a_closed_pipe_frees_its_graphs_and_their_memory(pipe, engine, fake, driver):
    before = driver.fake_allocations(), driver.fake_graphs()
    doubled = pipe("TensorrtTensor", model=engine(), instance_num=2)
    for value in range(8):
        ask(doubled, value)
    doubled.close()
    assert (driver.fake_allocations(), driver.fake_graphs()) == before
    assert len(fake.contexts) == 0

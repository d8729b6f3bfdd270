"""Memory, streams and devices on a real GPU, with the fake library; torch computes, and makes and reads tensors."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hami
import numpy as np
import pytest
from fake_tensorrt import tensor
from helpers import message

torch = pytest.importorskip("torch", reason="torch, which computes for the fake library, is not installed")

ALONE = "IoC[LoadTensorrtEngine,TensorrtInferTensor;S[TensorrtInferTensor,SyncTensor]]"
COLUMNS = 1 << 18
WIDE = {
    "tensors": {"x": tensor("INPUT", shape=(-1, COLUMNS)), "y": tensor("OUTPUT", shape=(-1, COLUMNS))},
    "profiles": [{"x": [(1, COLUMNS), (4, COLUMNS), (8, COLUMNS)]}],
}


def mean(result: Any) -> float:
    """Return the mean of a result, which torch reads in the order of its stream."""
    return float(torch.from_dlpack(result).double().mean())


@pytest.mark.parametrize("backend", ["TensorrtTensor", "SyncTensor[TensorrtTensor]", "StreamGuard[TensorrtTensor]"])
def test_arrays_of_many_callers_give_results_on_the_gpu(pipe, engine, backend):
    doubled = pipe(backend, model=engine(**WIDE), instance_num=2, max=8)
    data = [np.full((1, COLUMNS), value, np.float32) for value in range(64)]

    def total(array: np.ndarray) -> float:
        result = doubled({"data": array})["result"]
        assert result.device == "cuda:0"
        return mean(result)

    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(total, data)) == [2.0 * value for value in range(64)]


@pytest.mark.parametrize(
    "backend", ["TensorrtTensor", "SyncTensor[TensorrtTensor]", "With[StreamPool(2),TensorrtTensor]"]
)
def test_a_run_waits_for_data_of_torch_that_is_still_being_computed(pipe, engine, backend):
    doubled = pipe(backend, model=engine(**WIDE))
    for value in range(1, 5):
        data = torch.zeros(1, COLUMNS, device="cuda")
        torch.cuda._sleep(200_000_000)  # a run that does not wait reads zeros
        data.fill_(value)
        assert mean(doubled({"data": data})["result"]) == 2 * value


def test_the_memory_of_an_input_is_not_reused_before_it_is_read(pipe, engine):
    doubled = pipe("TensorrtTensor", model=engine(**WIDE))
    results = []
    for value in range(20):
        data = torch.full((1, COLUMNS), float(value), device="cuda")
        results.append(doubled({"data": data})["result"])
        del data
        torch.full((1, COLUMNS), 99.0, device="cuda")  # takes its memory, if it is free
    assert [mean(result) for result in results] == [2.0 * value for value in range(20)]


@pytest.mark.parametrize("graph", [True, False])
def test_graphs_of_many_shapes_and_callers_give_the_results_of_runs_without(pipe, engine, fake, caplog, graph):
    doubled = pipe("TensorrtTensor", model=engine(**WIDE), instance_num=2, max=8, graph=graph)

    def wrong(number: int) -> float:
        count = number % 4 + 1
        data = torch.full((count, COLUMNS), float(number), device="cuda")
        result = doubled({"data": data, "request_size": count})["result"]
        return float((torch.from_dlpack(result) - 2 * number).abs().max())

    with ThreadPoolExecutor(16) as threads:
        assert set(threads.map(wrong, range(600))) == {0.0}
    assert not [message for message in caplog.messages if "CUDA graphs" in message]
    batches = doubled.stats()["default"].batches
    assert fake.runs < batches / 2 if graph else fake.runs >= batches


def test_a_graph_waits_for_data_of_torch_and_torch_for_its_results(pipe, engine, fake):
    doubled = pipe("TensorrtTensor", model=engine(**WIDE))
    tested = fake.runs  # when the engine opens
    for value in range(1, 8):
        data = torch.zeros(1, COLUMNS, device="cuda")
        torch.cuda._sleep(200_000_000)  # a run that does not wait reads zeros
        data.fill_(value)
        result = doubled({"data": data})["result"]
        del data
        torch.full((1, COLUMNS), 99.0, device="cuda")  # takes the memory of the data, if it is free
        assert mean(result) == 2 * value
    assert fake.runs - tested == 3  # as usual, before the capture, and to be captured


def test_a_pool_of_streams_gives_the_same_results(pipe, engine):
    """The native backends around the engine alternate the two streams; the engine stays on that of its instance."""
    doubled = pipe("With[StreamPool(2),TensorrtTensor]", model=engine(**WIDE))
    data = [torch.full((1, COLUMNS), float(value), device="cuda") for value in range(50)]
    results = [doubled({"data": each})["result"] for each in data]
    assert [mean(result) for result in results] == [2.0 * value for value in range(50)]


def test_a_tensor_on_the_cpu_is_rejected_without_gpu_tensor(pipe, engine):
    with pytest.raises(hami.DataTypeError) as raised:
        pipe(ALONE, model=engine())({"data": torch.zeros(1, 2)})
    assert message(raised) == (
        "TensorrtInferTensor takes a tensor on cuda:0, got one on the CPU; put GpuTensor before it"
    )


def test_unaligned_and_strided_input_is_copied(pipe, engine, values):
    runner = pipe(ALONE, model=engine())
    many = torch.arange(16.0, device="cuda").reshape(4, 4)
    assert values(runner({"data": many[1:2, :2]})["result"]).tolist() == [[8, 10]]
    assert values(runner({"data": many[1:2, ::2]})["result"]).tolist() == [[8, 12]]


def test_out_of_memory_fails_the_batch_and_frees_its_memory(pipe, engine, values):
    most = 1 << 20
    squared = engine(
        tensors={"x": tensor("INPUT"), "y": tensor("OUTPUT", shape=(-1, -1))},
        profiles=[{"x": [(1, 2), (1, 2), (most, 2)]}],
        program="squared",
    )
    opened = pipe("SyncTensor[TensorrtTensor]", model=squared)
    one = {"data": np.zeros((1, 2), np.float32)}
    assert values(opened(dict(one))["result"]).tolist() == [[0]]
    for _ in range(3):
        with pytest.raises(MemoryError) as raised:
            opened({"data": np.zeros((most, 2), np.float32), "request_size": most})
        assert message(raised).startswith(f"TensorrtInferTensor: cannot allocate {most * most * 4} bytes on the device")
        del raised
    assert values(opened(dict(one))["result"]).tolist() == [[0]]


def test_closed_pipes_free_their_memory(pipe, engine, fake):
    model = engine(**WIDE)

    def cycle() -> None:
        opened = pipe("SyncTensor[TensorrtTensor]", model=model, instance_num=2)
        opened({"data": np.zeros((1, COLUMNS), np.float32)})
        opened.close()

    for _ in range(3):
        cycle()
    gc.collect()
    torch.cuda.synchronize()
    before, _ = torch.cuda.mem_get_info()
    for _ in range(200):
        cycle()
    gc.collect()
    torch.cuda.synchronize()
    assert torch.cuda.mem_get_info()[0] >= before - (16 << 20)
    assert (len(fake.contexts), len(fake.engines)) == (0, 0)

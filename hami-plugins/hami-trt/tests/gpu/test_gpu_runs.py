"""What is around the library on a real GPU: memory, streams, devices. The library is the fake one of these tests."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import hami
import numpy as np
import pytest
import torch
from fake_tensorrt import tensor
from helpers import message

ALONE = "IoC[LoadTensorrtEngine,TensorrtInferTensor;S[TensorrtInferTensor,SyncTensor]]"
COLUMNS = 1 << 18
WIDE = {
    "tensors": {"x": tensor("INPUT", shape=(-1, COLUMNS)), "y": tensor("OUTPUT", shape=(-1, COLUMNS))},
    "profiles": [{"x": [(1, COLUMNS), (4, COLUMNS), (8, COLUMNS)]}],
}


@pytest.mark.parametrize("backend", ["TensorrtTensor", "SyncTensor[TensorrtTensor]", "StreamGuard[TensorrtTensor]"])
def test_arrays_of_many_callers_become_results_on_the_gpu(pipe, engine, backend):
    doubled = pipe(backend, model=engine(**WIDE), instance_num=2, max=8)
    data = [np.full((1, COLUMNS), value, np.float32) for value in range(64)]

    def total(array: np.ndarray) -> float:
        result = doubled({"data": array})["result"]
        assert result.device == torch.device("cuda:0")
        return result.double().mean().item()

    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(total, data)) == [2.0 * value for value in range(64)]


@pytest.mark.parametrize(
    "backend", ["TensorrtTensor", "SyncTensor[TensorrtTensor]", "With[StreamPool(2),TensorrtTensor]"]
)
def test_data_that_is_still_being_made_is_waited_for(pipe, engine, backend):
    doubled = pipe(backend, model=engine(**WIDE))
    for value in range(1, 5):
        data = torch.zeros(1, COLUMNS, device="cuda")
        torch.cuda._sleep(200_000_000)  # who does not wait reads the zeros
        data.fill_(value)
        assert doubled({"data": data})["result"].double().mean().item() == 2 * value


def test_a_context_that_moves_to_another_stream_waits_for_itself(pipe, engine):
    """The pool hands out its streams in turn, one instance runs on both."""
    doubled = pipe("With[StreamPool(2),TensorrtTensor]", model=engine(**WIDE))
    data = [torch.full((1, COLUMNS), float(value), device="cuda") for value in range(50)]
    results = [doubled({"data": each})["result"] for each in data]
    assert [result.double().mean().item() for result in results] == [2.0 * value for value in range(50)]


def test_a_tensor_on_the_cpu_is_refused_where_nothing_moves_it(pipe, engine):
    with pytest.raises(hami.DataTypeError) as raised:
        pipe(ALONE, model=engine())({"data": torch.zeros(1, 2)})
    assert message(raised) == (
        "TensorrtInferTensor takes a tensor on cuda:0, got float32 [1, 2] on cpu; put GpuTensor before it"
    )


def test_input_that_is_not_aligned_is_copied(pipe, engine):
    many = torch.arange(8.0, device="cuda").reshape(4, 2)
    assert pipe(ALONE, model=engine())({"data": many[1:2]})["result"].tolist() == [[4, 6]]


def test_out_of_memory_fails_that_batch_and_its_memory_is_returned(pipe, engine):
    most = 1 << 20
    squared = engine(
        tensors={"x": tensor("INPUT"), "y": tensor("OUTPUT", shape=(-1, -1))},
        profiles=[{"x": [(1, 2), (1, 2), (most, 2)]}],
        program="squared",
    )
    alive = pipe("SyncTensor[TensorrtTensor]", model=squared)
    assert alive({"data": torch.zeros(1, 2)})["result"].tolist() == [[0]]
    gc.collect()
    before = torch.cuda.memory_allocated()
    errors = []
    for _ in range(3):
        with pytest.raises(MemoryError) as raised:
            alive({"data": torch.zeros(most, 2), "request_size": most})
        errors.append(raised.value)  # kept: an exception must not hold the memory of its batch
        assert message(raised).startswith("TensorrtInferTensor: out of memory on cuda:0: CUDA out of memory.")
        del raised
    torch.cuda.empty_cache()  # torch counts what other streams used until it looks whether they are done
    assert torch.cuda.memory_allocated() <= before + 1024
    assert alive({"data": torch.zeros(1, 2)})["result"].tolist() == [[0]]


def test_a_closed_pipe_has_returned_its_memory(pipe, engine, fake):
    model = engine(**WIDE)
    pipe("SyncTensor[TensorrtTensor]", model=model).close()
    gc.collect()
    before = torch.cuda.memory_allocated()
    for _ in range(200):
        opened = pipe("SyncTensor[TensorrtTensor]", model=model, instance_num=2)
        opened({"data": torch.zeros(1, COLUMNS)})
        opened.close()
    gc.collect()
    assert torch.cuda.memory_allocated() <= before + (1 << 20)
    assert (len(fake.contexts), len(fake.engines)) == (0, 0)

"""Memory, streams and devices on a real GPU, with the fake library."""

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
def test_arrays_of_many_callers_give_results_on_the_gpu(pipe, engine, backend):
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
def test_a_run_waits_for_data_that_is_still_being_computed(pipe, engine, backend):
    doubled = pipe(backend, model=engine(**WIDE))
    for value in range(1, 5):
        data = torch.zeros(1, COLUMNS, device="cuda")
        torch.cuda._sleep(200_000_000)  # a run that does not wait reads zeros
        data.fill_(value)
        assert doubled({"data": data})["result"].double().mean().item() == 2 * value


def test_a_context_on_a_new_stream_waits_for_its_previous_batch(pipe, engine):
    """The pool alternates its two streams, so the instance runs on both."""
    doubled = pipe("With[StreamPool(2),TensorrtTensor]", model=engine(**WIDE))
    data = [torch.full((1, COLUMNS), float(value), device="cuda") for value in range(50)]
    results = [doubled({"data": each})["result"] for each in data]
    assert [result.double().mean().item() for result in results] == [2.0 * value for value in range(50)]


def test_a_tensor_on_the_cpu_is_rejected_without_gpu_tensor(pipe, engine):
    with pytest.raises(hami.DataTypeError) as raised:
        pipe(ALONE, model=engine())({"data": torch.zeros(1, 2)})
    assert message(raised) == (
        "TensorrtInferTensor takes a tensor on cuda:0, got float32 [1, 2] on cpu; put GpuTensor before it"
    )


def test_unaligned_input_is_copied(pipe, engine):
    many = torch.arange(8.0, device="cuda").reshape(4, 2)
    assert pipe(ALONE, model=engine())({"data": many[1:2]})["result"].tolist() == [[4, 6]]


def test_out_of_memory_fails_the_batch_and_frees_its_memory(pipe, engine):
    most = 1 << 20
    squared = engine(
        tensors={"x": tensor("INPUT"), "y": tensor("OUTPUT", shape=(-1, -1))},
        profiles=[{"x": [(1, 2), (1, 2), (most, 2)]}],
        program="squared",
    )
    opened = pipe("SyncTensor[TensorrtTensor]", model=squared)
    assert opened({"data": torch.zeros(1, 2)})["result"].tolist() == [[0]]
    gc.collect()
    before = torch.cuda.memory_allocated()
    errors = []
    for _ in range(3):
        with pytest.raises(MemoryError) as raised:
            opened({"data": torch.zeros(most, 2), "request_size": most})
        errors.append(raised.value)  # kept: an exception must not keep the memory of its batch
        assert message(raised).startswith("TensorrtInferTensor: out of memory on cuda:0: CUDA out of memory.")
        del raised
    torch.cuda.empty_cache()  # torch counts memory of other streams until it checks them
    assert torch.cuda.memory_allocated() <= before + 1024
    assert opened({"data": torch.zeros(1, 2)})["result"].tolist() == [[0]]


def test_a_closed_pipe_frees_its_memory(pipe, engine, fake):
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

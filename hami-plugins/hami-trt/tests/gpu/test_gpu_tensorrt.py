"""The real library on a real GPU; a test is skipped if the library, or a GPU that it runs on, is missing."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hami
import numpy as np
import pytest
from hami_cuda.device import as_current
from hami_tensor import Device
from helpers import message

from hami_trt._gpu import find_device, gpu_of
from hami_trt._tensorrt import LIBRARIES, Library, find_library


def row(value: float) -> np.ndarray:
    return np.full((1, 16), value, np.float32)


def free_memory() -> int:
    """Return the free bytes of the device."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    with as_current(Device("cuda:0")):
        assert ctypes.CDLL("libcuda.so.1").cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value


@pytest.fixture(params=list(LIBRARIES))
def installed(request) -> Library:
    """A library that is installed. It does not have to run on this GPU."""
    try:
        return find_library(request.param, "this test")
    except hami.ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture
def library(installed) -> Library:
    """A library that is installed and runs on this GPU."""
    try:
        find_device(installed, "cuda", "this test")
    except hami.ConfigError as error:
        pytest.skip(str(error))
    return installed


@pytest.fixture
def model(tmp_path) -> Path:
    """An ONNX model relu(x @ w) with 16 columns, where x @ w is 2 * x."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed; these tests write models with it")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weights = onnx.numpy_helper.from_array(2 * np.eye(16, dtype=np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "doubles",
        [helper.make_tensor_value_info("x", kind, ["N", 16])],
        [helper.make_tensor_value_info("y", kind, ["N", 16])],
        [weights],
    )
    path = tmp_path / "doubles.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_a_gpu_that_the_library_does_not_support_is_an_error(pipe, installed, tmp_path):
    served, gpu = installed.compute_capabilities(), gpu_of(Device("cuda:0"))
    if not served or gpu.compute_capability in served:
        pytest.skip(f"{installed} runs on {gpu}")
    model = tmp_path / "model.onnx"
    model.touch()
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TensorrtTensor", model=model, library=installed.name)
    assert message(raised) == (
        f"Onnx2Tensorrt: {installed} does not run on {gpu}; it runs on compute capability {', '.join(served)}; "
        'use TensorRT on this GPU: pip install "hami-trt[cu13]"'
    )


def test_requests_run_together_and_each_gets_its_rows(pipe, library, model, values):
    config = {"model": str(model), "library": library.name, "max": 4, "batching": "greedy"}
    doubled = pipe("SyncTensor[TensorrtTensor]", **config)
    requests = doubled([{"data": row(value)} for value in range(10)])
    assert [values(request["result"]).tolist() for request in requests] == [[[2.0 * value] * 16] for value in range(10)]


def test_two_instances_run_concurrently(pipe, library, model, values):
    config = {"model": str(model), "library": library.name, "max": 4, "instance_num": 2}
    doubled = pipe("SyncTensor[TensorrtTensor]", **config)
    with ThreadPoolExecutor(16) as threads:
        results = list(threads.map(lambda value: doubled({"data": row(value)}), range(400)))
    assert [values(request["result"])[0, 0] for request in results] == [2.0 * value for value in range(400)]


def test_a_cached_engine_is_loaded_and_runs(pipe, library, model, values):
    cached = model.with_suffix(".trt")
    config = {"model": str(model), "library": library.name, "max": 4, "model::cache": str(cached)}
    pipe("SyncTensor[TensorrtTensor]", **config).close()
    loaded = pipe("SyncTensor[TensorrtTensor]", model=str(cached), library=library.name)
    assert values(loaded({"data": row(1)})["result"]).tolist() == [[2.0] * 16]


def test_data_outside_the_profile_is_rejected(pipe, library, model):
    doubled = pipe("TensorrtTensor", model=str(model), library=library.name, max=4)
    with pytest.raises(hami.RequestError) as raised:
        doubled({"data": np.zeros((1, 17), np.float32)})
    assert message(raised) == 'FixTensor takes float32 [-1, 16] for input "x" of the engine, got float32 [1, 17]'


def test_a_truncated_engine_is_rejected(pipe, library, model):
    cached = model.with_suffix(".trt")
    pipe("TensorrtTensor", model=str(model), library=library.name, **{"model::cache": str(cached)}).close()
    truncated = cached.with_name("truncated.trt")
    truncated.write_bytes(cached.read_bytes()[: cached.stat().st_size // 2])
    with pytest.raises(hami.ConfigError, match="LoadTensorrtEngine: "):
        pipe("TensorrtTensor", model=str(truncated), library=library.name)


def test_closed_pipes_free_their_memory(pipe, library, model):
    cached = str(model.with_suffix(".trt"))
    config = {"model": str(model), "library": library.name, "max": 4, "model::cache": cached, "instance_num": 2}
    pipe("SyncTensor[TensorrtTensor]", **config).close()
    free = free_memory()
    for _ in range(200):
        pipe("SyncTensor[TensorrtTensor]", **config).close()
    assert free_memory() >= free - (16 << 20)

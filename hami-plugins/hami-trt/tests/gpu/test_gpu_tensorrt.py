"""The real library on a real GPU; where the library or a GPU that it runs on is missing, each test says so."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hami
import pytest
import torch
from helpers import message

from hami_trt._gpu import device_for, gpu_of
from hami_trt._tensorrt import LIBRARIES, Library, find_library


@pytest.fixture(params=list(LIBRARIES))
def installed(request) -> Library:
    """A library that is installed, whether it runs on this GPU or not."""
    try:
        return find_library(request.param, "this test")
    except hami.ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture
def library(installed) -> Library:
    """A library that runs here."""
    try:
        device_for(installed, "cuda", "this test")
    except hami.ConfigError as error:
        pytest.skip(str(error))
    return installed


@pytest.fixture
def model(tmp_path) -> Path:
    """relu(x @ w) of rows of 16, as ONNX; w doubles."""
    onnx = pytest.importorskip("onnx", reason="onnx, which writes the models of these tests, is not installed")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weights = onnx.numpy_helper.from_array((2 * torch.eye(16)).numpy(), "w")
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


def test_a_gpu_that_the_library_does_not_run_on_is_told_in_one_sentence(pipe, installed):
    served, gpu = installed.compute_capabilities(), gpu_of(torch.device("cuda:0"))
    if not served or gpu.compute_capability in served:
        pytest.skip(f"{installed} runs on {gpu}")
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TensorrtTensor", model="model.onnx", library=installed.name)
    assert message(raised) == (
        f"Onnx2Tensorrt: {installed} does not run on {gpu}; it runs on compute capability {', '.join(served)}; "
        "use TensorRT on this GPU (pip install hami-trt[cu13])"
    )


def test_requests_run_together_and_each_gets_its_rows(pipe, library, model):
    config = {"model": str(model), "library": library.name, "max": 4, "batching": "max"}
    doubled = pipe("SyncTensor[TensorrtTensor]", **config)
    requests = doubled([{"data": torch.full((1, 16), float(value))} for value in range(10)])
    assert [request["result"].tolist() for request in requests] == [[[2.0 * value] * 16] for value in range(10)]


def test_two_instances_run_beside_each_other(pipe, library, model):
    config = {"model": str(model), "library": library.name, "max": 4, "instance_num": 2}
    doubled = pipe("SyncTensor[TensorrtTensor]", **config)
    with ThreadPoolExecutor(16) as threads:
        results = list(threads.map(lambda value: doubled({"data": torch.full((1, 16), float(value))}), range(400)))
    assert [request["result"][0, 0].item() for request in results] == [2.0 * value for value in range(400)]


def test_an_engine_that_was_kept_is_loaded_and_runs(pipe, library, model):
    kept = model.with_suffix(".trt")
    config = {"model": str(model), "library": library.name, "max": 4, "model::cache": str(kept)}
    pipe("SyncTensor[TensorrtTensor]", **config).close()
    loaded = pipe("SyncTensor[TensorrtTensor]", model=str(kept), library=library.name)
    assert loaded({"data": torch.ones(1, 16)})["result"].tolist() == [[2.0] * 16]


def test_what_does_not_fit_the_profile_is_refused_with_both(pipe, library, model):
    doubled = pipe("TensorrtTensor", model=str(model), library=library.name, max=4)
    with pytest.raises(hami.RequestError) as raised:
        doubled({"data": torch.zeros(1, 16, dtype=torch.float16)})
    assert message(raised) == 'TensorrtInferTensor: input "x" takes float32 [1..4, 16], got float16 [1, 16]'


def test_half_of_an_engine_is_refused(pipe, library, model):
    kept = model.with_suffix(".trt")
    pipe("TensorrtTensor", model=str(model), library=library.name, **{"model::cache": str(kept)}).close()
    half = kept.with_name("half.trt")
    half.write_bytes(kept.read_bytes()[: kept.stat().st_size // 2])
    with pytest.raises(hami.ConfigError, match="LoadTensorrtEngine: "):
        pipe("TensorrtTensor", model=str(half), library=library.name)


def test_closed_pipes_have_returned_their_memory(pipe, library, model):
    kept = str(model.with_suffix(".trt"))
    config = {"model": str(model), "library": library.name, "max": 4, "model::cache": kept, "instance_num": 2}
    pipe("SyncTensor[TensorrtTensor]", **config).close()
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    for _ in range(200):
        pipe("SyncTensor[TensorrtTensor]", **config).close()
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] >= free - (16 << 20)

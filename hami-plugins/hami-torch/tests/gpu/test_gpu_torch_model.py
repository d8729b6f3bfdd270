"""TorchModel on the GPU: CUDA graphs, dtypes, sources of programs, and memory."""

from __future__ import annotations

import gc
import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor

import hami
import pytest
import torch
from helpers import Scaled, message

CONV = {
    "factory": "torch.nn:Conv2d",
    "arguments": ["in_channels=3", "out_channels=8", "kernel_size=3"],
    "batched": True,
}


def conv(pipe, tmp_path, **config):
    """Return a pipe with a convolution; all pipes of a test have the same weights."""
    weights = tmp_path / "conv.pt"
    if not weights.is_file():
        torch.save(torch.nn.Conv2d(3, 8, 3).state_dict(), weights)
    return pipe("S[TorchModel,SyncTensor]", **CONV, weights=str(weights), batching="greedy", **config)


def check_results_in_threads(served: hami.Pipe, reference: hami.Pipe, data: list[torch.Tensor]) -> None:
    """Call one pipe from many threads and compare with the results of the other from one thread."""
    expected = [reference({"data": each})["result"] for each in data]
    with ThreadPoolExecutor(12) as threads:
        for _ in range(5):
            results = list(threads.map(lambda each: served({"data": each})["result"], data))
            for result, wanted in zip(results, expected, strict=True):
                torch.testing.assert_close(result, wanted, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("channels_last", [False, True])
def test_graphs_give_the_results_of_the_model_at_every_batch_size(pipe, tmp_path, dtype, channels_last):
    config = {"dtype": dtype, "channels_last": channels_last}
    eager = conv(pipe, tmp_path, max=8, **config)
    captured = conv(pipe, tmp_path, graphs=[1, 2, 4, 8], row_shape=[3, 16, 16], **config)
    kept = []
    for rows in range(1, 9):
        data = [torch.rand(1, 3, 16, 16, device="cuda") for _ in range(rows)]
        expected = eager([{"data": each} for each in data])
        given = captured([{"data": each} for each in data])
        kept += zip(expected, given, strict=True)
    for expected, given in kept:  # after all runs, so that an overwritten result is seen
        assert given["result"].dtype == getattr(torch, dtype)
        torch.testing.assert_close(given["result"], expected["result"])
    assert captured.stats()["default"].batches == 8


def test_input_that_no_graph_fits_runs_without_a_graph(pipe, tmp_path):
    captured = conv(pipe, tmp_path, graphs=[2], row_shape=[3, 16, 16])
    assert captured({"data": torch.rand(1, 3, 20, 20, device="cuda")})["result"].shape == (1, 8, 18, 18)


def test_a_request_of_several_rows_is_padded(pipe, tmp_path):
    captured = conv(pipe, tmp_path, graphs=[4], row_shape=[3, 8, 8])
    eager = conv(pipe, tmp_path, max=4)
    data = torch.rand(3, 3, 8, 8, device="cuda")
    request = {"data": data, "request_size": 3}
    torch.testing.assert_close(captured(dict(request))["result"], eager(dict(request))["result"])


def test_graphs_of_several_instances_run_concurrently(pipe, tmp_path):
    captured = conv(pipe, tmp_path, graphs=[1, 4], row_shape=[3, 64, 64], instance_num=3, dtype="float16")
    eager = conv(pipe, tmp_path, dtype="float16")
    data = [torch.rand(1, 3, 64, 64, device="cuda") for _ in range(40)]
    check_results_in_threads(captured, eager, data)


def test_a_model_that_cannot_be_captured_is_rejected(pipe):
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TorchModel", factory="helpers:PositiveElements", graphs=[2], row_shape=[4])
    assert message(raised).startswith("TorchModel: the model cannot be captured as a CUDA graph of 2 rows: ")
    # torch is still usable: random numbers, and memory that several streams used.
    assert torch.rand(3, device="cuda").shape == (3,)
    double = pipe("S[TorchModel,SyncTensor]", factory="helpers:Double")
    before = torch.cuda.memory_allocated()
    for _ in range(4):
        double({"data": torch.ones(1, 1 << 20, device="cuda")})
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() <= before + 1024


def small_network() -> torch.nn.Module:
    """Return a small network with the same weights on each call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        image = [torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()]
        return torch.nn.Sequential(*image, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 4))


def compiled_network(**settings: str) -> torch.nn.Module:
    return torch.compile(small_network(), **settings)


@pytest.mark.filterwarnings("ignore")  # torch's compiler emits warnings about itself and the GPU
@pytest.mark.skipif(shutil.which("gcc") is None, reason="Triton compiles with gcc, which is not installed")
@pytest.mark.parametrize("graphs", [[], [2, 8]])
def test_a_compiled_model_is_correct_in_many_threads(pipe, graphs):
    config = {"row_shape": [3, 16, 16], "max": 8, "instance_num": 2}
    plain = pipe("S[TorchModel,SyncTensor]", factory="test_gpu_torch_model:small_network", **config)
    compiled = pipe(
        "S[TorchModel,SyncTensor]", factory="test_gpu_torch_model:compiled_network", **config, graphs=graphs
    )
    data = [torch.rand(1, 3, 16, 16, device="cuda") for _ in range(64)]
    check_results_in_threads(compiled, plain, data)


@pytest.mark.filterwarnings("ignore")
def test_cuda_graphs_of_torch_compile_are_rejected(pipe):
    with pytest.raises(hami.ConfigError) as raised:
        pipe(
            "TorchModel",
            factory="test_gpu_torch_model:compiled_network",
            arguments=["mode=reduce-overhead"],
            device="cuda:0",
        )
    assert message(raised).startswith("TorchModel: the model is compiled with CUDA graphs of torch.compile, ")


def test_programs_saved_on_the_cpu_run_on_the_gpu(pipe, tmp_path):
    x = torch.ones(2, 2)
    exported, script = str(tmp_path / "m.pt2"), str(tmp_path / "m.pt")
    torch.export.save(
        torch.export.export(Scaled(), (x,), dynamic_shapes={"x": {0: torch.export.Dim("n", max=8)}}), exported
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.trace(Scaled(), x), script)
    for path in (exported, script):
        for dtype in ({}, {"dtype": "float16"}):
            result = pipe("S[TorchModel,SyncTensor]", model=path, **dtype)({"data": torch.ones(1, 2, device="cuda")})[
                "result"
            ]
            assert result.tolist() == [[3, 3]]
            assert result.is_cuda


@pytest.mark.skipif(not hasattr(torch._inductor, "aoti_load_package"), reason="this torch has no AOTInductor packages")
@pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor compiles with g++, which is not installed")
@pytest.mark.skip(reason="torch 2.11 with CUDA 13 crashes when it loads such a package, also without hami")
def test_an_aotinductor_package_runs_on_the_device_it_is_compiled_for(pipe, tmp_path):
    module, x = Scaled().cuda(), torch.ones(2, 2, device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module, (x,), dynamic_shapes={"x": {0: torch.export.Dim("n", max=8)}})
        path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "m.pt2"))
    hami.native.allow_library(path)
    compiled = pipe("S[TorchModel,SyncTensor]", model=path, batched=True, max=4, batching="greedy", instance_num=2)
    requests = compiled([{"data": torch.full((1, 2), float(i), device="cuda")} for i in range(8)])
    assert [request["result"].tolist() for request in requests] == [[[3.0 * i, 3.0 * i]] for i in range(8)]
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TorchModel", model=path, device="cpu")
    assert message(raised) == (
        f'TorchModel: "{path}" is an AOTInductor package compiled for cuda, but device is "cpu"; '
        'set "device" to cuda, or compile the package for cpu'
    )


class AllocatesTooMuch(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gibibytes = int(x.max().item())
        torch.empty(gibibytes << 30, dtype=torch.uint8, device=x.device)
        return x + 1


@pytest.mark.parametrize(
    ("backend", "device"), [("S[GpuTensor,TorchModel,SyncTensor]", "cpu"), ("S[TorchModel,SyncTensor]", "cuda")]
)
def test_out_of_memory_fails_the_batch_and_frees_its_memory(pipe, backend, device):
    alive = pipe(backend, factory="test_gpu_torch_model:AllocatesTooMuch", batched=True, max=4, batching="greedy")
    assert alive({"data": torch.zeros(1, device=device)})["result"].item() == 1
    gc.collect()
    before = torch.cuda.memory_allocated()
    errors = []
    for _ in range(3):
        with pytest.raises(hami.BatchError) as raised:
            alive([{"data": torch.full((1, 1 << 24), value, device=device)} for value in (1.0, 100_000.0)])
        # The exceptions are kept: they must not hold the memory of their batch. A traceback would hold the data.
        errors.append(raised.value.with_traceback(None))
        assert [type(error) for _, error in raised.value.errors] == [MemoryError, MemoryError]
        assert str(raised.value.errors[0][1]).startswith("TorchModel: out of memory on cuda:0: CUDA out of memory.")
        del raised
    assert torch.cuda.memory_allocated() <= before + 1024
    assert alive({"data": torch.zeros(1, device=device)})["result"].item() == 1


def test_a_closed_pipe_frees_its_memory(pipe, tmp_path):
    conv(pipe, tmp_path, graphs=[1, 8], row_shape=[3, 64, 64]).close()
    gc.collect()
    before = torch.cuda.memory_allocated()
    for _ in range(5):
        model = conv(pipe, tmp_path, graphs=[1, 8], row_shape=[3, 64, 64], instance_num=2)
        model({"data": torch.rand(1, 3, 64, 64, device="cuda")})
        model.close()
    gc.collect()
    assert torch.cuda.memory_allocated() <= before + (1 << 20)

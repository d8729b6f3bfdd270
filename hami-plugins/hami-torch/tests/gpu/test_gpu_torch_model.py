"""TorchModel on the GPU: CUDA graphs, dtypes, where programs come from, and memory."""

from __future__ import annotations

import gc
import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor

import hami
import pytest
import torch
from helpers import Scaled, message

CONV = {"factory": "torch.nn:Conv2d", "arguments": ["in_channels=3", "out_channels=8", "kernel_size=3"]}


def conv(pipe, tmp_path, **config):
    """A convolution whose weights are the same in every pipe of a test."""
    weights = tmp_path / "conv.pt"
    if not weights.is_file():
        torch.save(torch.nn.Conv2d(3, 8, 3).state_dict(), weights)
    return pipe("S[TorchModel,SyncTensor]", **CONV, weights=str(weights), batching="max", **config)


def same_in_threads(served: hami.Pipe, right: hami.Pipe, data: list[torch.Tensor]) -> None:
    """Ask one pipe from many threads and compare with what the other gives to one."""
    expected = [right({"data": each})["result"] for each in data]
    with ThreadPoolExecutor(12) as threads:
        for _ in range(5):
            results = list(threads.map(lambda each: served({"data": each})["result"], data))
            for result, wanted in zip(results, expected, strict=True):
                torch.testing.assert_close(result, wanted, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("channels_last", [False, True])
def test_graphs_give_what_the_model_gives_at_every_batch_size(pipe, tmp_path, dtype, channels_last):
    config = {"dtype": dtype, "channels_last": channels_last}
    eager = conv(pipe, tmp_path, max=8, **config)
    captured = conv(pipe, tmp_path, graphs=[1, 2, 4, 8], row_shape=[3, 16, 16], **config)
    kept = []
    for rows in range(1, 9):
        data = [torch.rand(1, 3, 16, 16, device="cuda") for _ in range(rows)]
        expected = eager([{"data": each} for each in data])
        given = captured([{"data": each} for each in data])
        kept += zip(expected, given, strict=True)
    for expected, given in kept:  # only now: no later run has overwritten an earlier result
        assert given["result"].dtype == getattr(torch, dtype)
        torch.testing.assert_close(given["result"], expected["result"])
    assert captured.stats()["default"]["batches"] == 8


def test_what_no_graph_fits_runs_without(pipe, tmp_path):
    captured = conv(pipe, tmp_path, graphs=[2], row_shape=[3, 16, 16])
    assert captured({"data": torch.rand(1, 3, 20, 20, device="cuda")})["result"].shape == (1, 8, 18, 18)


def test_a_gathered_request_of_several_rows_is_padded_too(pipe, tmp_path):
    captured = conv(pipe, tmp_path, graphs=[4], row_shape=[3, 8, 8])
    eager = conv(pipe, tmp_path, max=4)
    data = torch.rand(3, 3, 8, 8, device="cuda")
    request = {"data": data, "request_size": 3}
    torch.testing.assert_close(captured(dict(request))["result"], eager(dict(request))["result"])


def test_graphs_of_several_instances_run_beside_each_other(pipe, tmp_path):
    captured = conv(pipe, tmp_path, graphs=[1, 4], row_shape=[3, 64, 64], instance_num=3, dtype="float16")
    eager = conv(pipe, tmp_path, dtype="float16")
    data = [torch.rand(1, 3, 64, 64, device="cuda") for _ in range(40)]
    same_in_threads(captured, eager, data)


def test_a_model_that_cannot_be_captured_says_so(pipe):
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TorchModel", factory="helpers:PositiveElements", graphs=[2], row_shape=[4])
    assert message(raised).startswith("TorchModel: the model cannot be captured as a CUDA graph of 2 rows: ")
    # torch itself goes on: random numbers, and memory that several streams used.
    assert torch.rand(3, device="cuda").shape == (3,)
    double = pipe("S[TorchModel,SyncTensor]", factory="helpers:Double")
    before = torch.cuda.memory_allocated()
    for _ in range(4):
        double({"data": torch.ones(1, 1 << 20, device="cuda")})
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() <= before + 1024


def small_network() -> torch.nn.Module:
    """Convolution, normalization, activation and a linear layer; the weights are the same each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        image = [torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()]
        return torch.nn.Sequential(*image, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 4))


def compiled_network(**settings: str) -> torch.nn.Module:
    return torch.compile(small_network(), **settings)


@pytest.mark.filterwarnings("ignore")  # torch's compiler warns of itself and of the GPU
@pytest.mark.skipif(shutil.which("gcc") is None, reason="Triton compiles with gcc, which is not installed")
@pytest.mark.parametrize("graphs", [[], [2, 8]])
def test_what_torch_compile_made_is_right_in_many_threads(pipe, graphs):
    config = {"row_shape": [3, 16, 16], "max": 8, "instance_num": 2}
    plain = pipe("S[TorchModel,SyncTensor]", factory="test_gpu_torch_model:small_network", **config)
    compiled = pipe(
        "S[TorchModel,SyncTensor]", factory="test_gpu_torch_model:compiled_network", **config, graphs=graphs
    )
    data = [torch.rand(1, 3, 16, 16, device="cuda") for _ in range(64)]
    same_in_threads(compiled, plain, data)


@pytest.mark.filterwarnings("ignore")
def test_torch_compiles_own_graphs_are_refused(pipe):
    with pytest.raises(hami.ConfigError) as raised:
        pipe(
            "TorchModel",
            factory="test_gpu_torch_model:compiled_network",
            arguments=["mode=reduce-overhead"],
            device="cuda:0",
        )
    assert message(raised).startswith("TorchModel: torch.compile made the model with CUDA graphs of its own")


def test_programs_that_were_made_on_the_cpu_run_on_the_gpu(pipe, tmp_path):
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
@pytest.mark.skip(reason="torch 2.11 with CUDA 13 crashes while it loads such a package, in a process without hami too")
def test_an_aotinductor_package_runs_on_the_device_it_is_for(pipe, tmp_path):
    module, x = Scaled().cuda(), torch.ones(2, 2, device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module, (x,), dynamic_shapes={"x": {0: torch.export.Dim("n", max=8)}})
        path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "m.pt2"))
    compiled = pipe("S[TorchModel,SyncTensor]", model=path, max=4, batching="max", instance_num=2)
    requests = compiled([{"data": torch.full((1, 2), float(i), device="cuda")} for i in range(8)])
    assert [request["result"].tolist() for request in requests] == [[[3.0 * i, 3.0 * i]] for i in range(8)]
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TorchModel", model=path, device="cpu")
    assert message(raised) == (f'TorchModel: "{path}" is compiled by AOTInductor for cuda, and device is "cpu"')


class TakesTooMuch(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        most = int(x.max().item())
        torch.empty(most << 30, dtype=torch.uint8, device=x.device)
        return x + 1


@pytest.mark.parametrize(
    ("backend", "device"), [("S[GpuTensor,TorchModel,SyncTensor]", "cpu"), ("S[TorchModel,SyncTensor]", "cuda")]
)
def test_out_of_memory_fails_that_batch_and_its_memory_is_returned(pipe, backend, device):
    alive = pipe(backend, factory="test_gpu_torch_model:TakesTooMuch", max=4, batching="max")
    assert alive({"data": torch.zeros(1, device=device)})["result"].item() == 1
    gc.collect()
    before = torch.cuda.memory_allocated()
    errors = []
    for _ in range(3):
        with pytest.raises(hami.BatchError) as raised:
            alive([{"data": torch.full((1, 1 << 24), value, device=device)} for value in (1.0, 100_000.0)])
        # Kept: an exception must not hold the memory of its batch. Its traceback holds what the caller gave.
        errors.append(raised.value.with_traceback(None))
        assert [type(error) for _, error in raised.value.errors] == [MemoryError, MemoryError]
        assert str(raised.value.errors[0][1]).startswith("TorchModel: out of memory on cuda:0: CUDA out of memory.")
        del raised
    assert torch.cuda.memory_allocated() <= before + 1024
    assert alive({"data": torch.zeros(1, device=device)})["result"].item() == 1


def test_a_closed_pipe_has_returned_its_memory(pipe, tmp_path):
    conv(pipe, tmp_path, graphs=[1, 8], row_shape=[3, 64, 64]).close()
    gc.collect()
    before = torch.cuda.memory_allocated()
    for _ in range(5):
        model = conv(pipe, tmp_path, graphs=[1, 8], row_shape=[3, 64, 64], instance_num=2)
        model({"data": torch.rand(1, 3, 64, 64, device="cuda")})
        model.close()
    gc.collect()
    assert torch.cuda.memory_allocated() <= before + (1 << 20)

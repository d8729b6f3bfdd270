"""CUDA graphs of TorchModel that hami-cuda runs for batches of its own tensors, without Python."""

from __future__ import annotations

import contextlib
import gc
from concurrent.futures import ThreadPoolExecutor

import hami
import pytest

np = pytest.importorskip("numpy", reason="numpy is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")
hami_torch = pytest.importorskip("hami_torch", reason="hami-torch is not installed")
hami_torch.allow_factory(__name__)
pytestmark = pytest.mark.skipif(
    not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph_exec"), reason="this torch does not give the handle of a graph"
)
CHAIN = "S[hami-cuda::GpuTensor,TorchModel,SyncTensor]"
GRAPHS = {"row_shape": [3, 8, 8], "graphs": [1, 2, 4, 8], "batching": "greedy", "batched": True}


class Double(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@pytest.fixture
def pipe():
    """pipe("Backend", key=…) -> an open pipe"""
    with contextlib.ExitStack() as stack:
        yield lambda backend, **config: stack.enter_context(hami.pipe({"backend": backend, **config}))


def image(value: float) -> np.ndarray:
    return np.full((1, 3, 8, 8), value, np.float32)


def runs(pipe) -> int:
    return pipe.stats()["default"].counters.get("graph_runs", 0)


def values_of(requests) -> list[float]:
    found = [request["result"] for request in requests]
    assert all(isinstance(each, torch.Tensor) and each.shape == (1, 3, 8, 8) for each in found)
    assert all((each == each.flatten()[0]).all() for each in found)
    return [each.flatten()[0].item() for each in found]


@pytest.mark.parametrize("end", ["SyncTensor", "StreamGuard", "Identity"])
def test_batches_run_natively_from_the_second_on(pipe, end):
    served = pipe(f"S[hami-cuda::GpuTensor,TorchModel,{end}]", factory="test_gpu_captured_model:Double", **GRAPHS)
    kept = []
    for count in range(1, 9):
        requests = served([{"data": image(10 * count + i)} for i in range(count)])
        kept.append((count, [request["result"] for request in requests]))
    assert runs(served) == 7
    for count, results in kept:  # after all runs, so that an overwritten result is seen
        assert [each.flatten()[0].item() for each in results] == [2.0 * (10 * count + i) for i in range(count)]


@pytest.mark.parametrize("channels_last", [False, True])
def test_results_are_those_of_the_model(pipe, tmp_path, channels_last):
    torch.save(torch.nn.Conv2d(3, 8, 3).state_dict(), tmp_path / "conv.pt")
    config = {
        "factory": "torch.nn:Conv2d",
        "arguments": ["in_channels=3", "out_channels=8", "kernel_size=3"],
        "weights": str(tmp_path / "conv.pt"),
        "channels_last": channels_last,
        "input_mean": [0.5, 0.4, 0.3],
        "input_std": [0.2, 0.2, 0.1],
    }
    served = pipe(CHAIN, **GRAPHS, **config)
    eager = pipe(CHAIN, **{**GRAPHS, "graphs": []}, **config)
    for count in (1, 3, 5, 8):
        requests = [{"data": np.random.default_rng(i).random((1, 3, 8, 8), np.float32)} for i in range(count)]
        expected = eager([dict(each) for each in requests])
        for given, wanted in zip(served([dict(each) for each in requests]), expected, strict=True):
            torch.testing.assert_close(given["result"], wanted["result"], rtol=1e-2, atol=1e-2)
    assert runs(served) == 3


def test_other_data_runs_in_python(pipe):
    served = pipe(CHAIN, factory="test_gpu_captured_model:Double", **GRAPHS)
    served({"data": image(1)})
    assert served({"data": np.ones((1, 3, 4, 4), np.float32)})["result"].shape == (1, 3, 4, 4)
    assert served({"data": np.ones((12, 3, 8, 8), np.float32)})["result"].shape == (12, 3, 8, 8)
    assert runs(served) == 0
    assert values_of([served({"data": image(3)})]) == [6]
    assert runs(served) == 1


def tensor(value: float, layout: torch.memory_format = torch.contiguous_format) -> torch.Tensor:
    return torch.full((1, 3, 8, 8), float(value), device="cuda").contiguous(memory_format=layout)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_torch_tensors_run_natively_and_are_ordered_with_the_default_stream(pipe, layout):
    served = pipe("S[TorchModel,SyncTensor]", factory="test_gpu_captured_model:Double", **GRAPHS)
    served({"data": tensor(0)})
    busy = torch.rand((4096, 4096), device="cuda")
    for count in range(1, 9):
        for _ in range(8):
            busy = busy @ busy  # the tensors that follow are written late
        data = [tensor(10 * count + i, layout) for i in range(count)]
        assert values_of(served([{"data": each} for each in data])) == [2.0 * (10 * count + i) for i in range(count)]
    assert runs(served) == 8


@pytest.mark.parametrize("make", ["requires_grad", "negated"])
def test_tensors_with_a_state_that_dlpack_does_not_carry_are_read_by_torch(pipe, make):
    served = pipe("S[TorchModel,SyncTensor]", factory="test_gpu_captured_model:Double", **GRAPHS)
    for value in (1, 2, 3):
        if make == "negated":
            given = torch.full((1, 3, 8, 8), complex(0, value), device="cuda").conj().imag
            assert given.is_neg()
            assert values_of([served({"data": given})]) == [-2.0 * value]
        else:
            assert values_of([served({"data": tensor(value).requires_grad_()})]) == [2.0 * value]
    assert runs(served) == 0


def test_a_tensor_of_another_stream_is_ordered(pipe):
    served = pipe("S[TorchModel,SyncTensor]", factory="test_gpu_captured_model:Double", **GRAPHS)
    own = torch.cuda.Stream()
    busy = torch.rand((4096, 4096), device="cuda")
    for value in range(1, 20):
        own.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(own):
            for _ in range(8):
                busy = busy @ busy
            given = tensor(value)
            torch.cuda.default_stream().wait_stream(own)
            assert values_of([served({"data": given})]) == [2.0 * value]


def test_threads_with_torch_tensors_never_mix_up_their_data(pipe):
    served = pipe("S[TorchModel,SyncTensor]", factory="test_gpu_captured_model:Double", **GRAPHS, instance_num=3)
    with ThreadPoolExecutor(16) as threads:
        got = list(threads.map(lambda number: values_of([served({"data": tensor(number)})])[0], range(1000)))
    assert got == [2.0 * number for number in range(1000)]
    assert runs(served) > 0


def test_threads_and_instances_never_mix_up_their_data(pipe):
    served = pipe(CHAIN, factory="test_gpu_captured_model:Double", **GRAPHS, instance_num=3)
    with ThreadPoolExecutor(16) as threads:
        got = list(threads.map(lambda number: values_of([served({"data": image(number)})])[0], range(1000)))
    assert got == [2.0 * number for number in range(1000)]
    assert runs(served) > 0


class RandomNumbers(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)


def test_a_model_with_random_numbers_runs_in_python_and_gets_new_ones(pipe):
    served = pipe(CHAIN, factory="test_gpu_captured_model:RandomNumbers", **GRAPHS)
    first, second, third = (served({"data": image(0)})["result"].flatten()[0].item() for _ in range(3))
    assert len({first, second, third}) == 3
    assert runs(served) == 0
    assert any("random numbers" in remark for remark in served.remarks())


class FollowsTheFirstRow(Double):
    """Adds the first row to each from the moment on that `mixes` is set: the graphs add 0 or its value."""

    mixes: torch.Tensor | None = None

    def __init__(self) -> None:
        super().__init__()
        FollowsTheFirstRow.mixes = torch.zeros((), device="cuda")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert FollowsTheFirstRow.mixes is not None
        return x * 2 + x[:1] * FollowsTheFirstRow.mixes


def test_a_watched_row_that_differs_ends_the_joining_natively_too(pipe):
    config = {**GRAPHS, "batched": None}
    served = pipe(CHAIN, factory="test_gpu_captured_model:FollowsTheFirstRow", **config)
    batch = [{"data": image(5)}, {"data": image(1)}]
    assert values_of(served([dict(each) for each in batch])) == [10, 2]
    FollowsTheFirstRow.mixes.fill_(1)
    for _ in range(600):
        last = values_of(served([dict(each) for each in batch]))
        if last == [15, 3]:
            break
    assert last == [15, 3]  # each row alone


def test_a_result_does_not_keep_its_batch_and_memory_is_flat(pipe):
    served = pipe(CHAIN, factory="test_gpu_captured_model:Double", **GRAPHS, instance_num=2)

    def use() -> int:
        for _ in range(100):
            served([{"data": image(i)} for i in range(8)])
        torch.cuda.synchronize()
        gc.collect()
        return torch.cuda.mem_get_info()[0]

    use()
    before = use()
    assert all(before - use() <= 4 << 20 for _ in range(3))

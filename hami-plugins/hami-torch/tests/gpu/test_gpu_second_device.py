"""A second GPU: work for cuda:1 runs there, and two GPUs work at the same time."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import hami
import numpy as np
import pytest
import torch
from helpers import message

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs; this machine has fewer")

SECOND = torch.device("cuda:1")
CONV = {"factory": "torch.nn:Conv2d", "arguments": ["in_channels=3", "out_channels=4", "kernel_size=3"]}
PATH = "S[GpuTensor,TorchModel,{end}]"
PATH_CONFIG = {"batched": True, "max": 4, "batching": "greedy"}


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "conv.pt"
    torch.save(torch.nn.Conv2d(3, 4, 3).state_dict(), path)
    return str(path)


@pytest.mark.parametrize("end", ["SyncTensor", "StreamGuard", "CpuTensor"])
@pytest.mark.parametrize("graphs", [[], [1, 2, 4]])
def test_the_second_gpu_gives_the_results_of_the_first(pipe, weights, end, graphs):
    def path(device: str) -> hami.Pipe:
        config = {**PATH_CONFIG, **CONV, "weights": weights, "graphs": graphs, "row_shape": [3, 32, 32]}
        return pipe(PATH.format(end=end), device=device, **config)

    first, second = path("cuda:0"), path("cuda:1")
    data = [torch.rand(1, 3, 32, 32) for _ in range(3)]
    expected = first([{"data": each} for each in data])
    first.close()
    gc.collect()  # from here on, nothing of an earlier test frees memory of the first GPU
    before = torch.cuda.memory_allocated(0)
    for _ in range(3):
        for given, wanted in zip(second([{"data": each} for each in data]), expected, strict=True):
            assert given["result"].device == (torch.device("cpu") if end == "CpuTensor" else SECOND)
            torch.testing.assert_close(given["result"].cpu(), wanted["result"].cpu(), rtol=1e-4, atol=1e-4)
    assert torch.cuda.memory_allocated(0) == before
    assert torch.cuda.current_device() == 0  # the current device of the caller's thread is unchanged


def test_two_gpus_serve_many_threads_at_once(pipe):
    paths = [
        pipe(
            "S[GpuTensor,TorchModel,SyncTensor]",
            factory="helpers:Double",
            graphs=[1, 4],
            row_shape=[64],
            device=f"cuda:{index}",
            max=4,
            instance_num=2,
        )
        for index in (0, 1)
    ]

    def right(number: int) -> bool:
        result = paths[number % 2]({"data": np.full((1, 64), number, np.float32)})["result"]
        return result.device.index == number % 2 and bool((result == 2 * number).all())

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(right, range(800)))


def test_one_node_uses_both_gpus(pipe):
    both = pipe(
        "S[GpuTensor,TorchModel,SyncTensor]",
        factory="helpers:Double",
        row_shape=[64],
        device="cuda:*",
        max=1,
        instance_num=4,
    )
    used = set()

    def right(number: int) -> bool:
        result = both({"data": np.full((1, 64), number, np.float32)})["result"]
        used.add(result.device)
        return bool((result == 2 * number).all())

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(right, range(800)))
    assert used == {torch.device("cuda:0"), SECOND}


class TakesTheCurrentDevice(torch.nn.Module):
    """Uses "cuda" without a number, as much code does."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("made_in_init", torch.ones(1, device="cuda"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.made_in_init + torch.ones(1, device="cuda")


@pytest.mark.parametrize("backend", ["TorchModel", "S[TorchModel,SyncTensor]", "StreamGuard[TorchModel]"])
def test_a_model_that_uses_the_current_device_runs_on_the_gpu_of_its_node(pipe, backend):
    model = pipe(backend, factory="test_gpu_second_device:TakesTheCurrentDevice", device="cuda:1")
    for _ in range(3):
        assert model({"data": torch.ones(1, 1, device=SECOND)})["result"].tolist() == [[3]]
    assert torch.cuda.current_device() == 0


def test_results_of_sync_tensor_on_the_second_gpu_are_complete(pipe):
    @hami.register
    class SlowDoubleOnSecond(hami.Backend):
        thread = "concurrent"

        def forward(self, batch):
            for item in batch:
                torch.cuda._sleep(200_000_000)
                item["result"] = item["data"] * 2

    data = torch.ones(1 << 20, device=SECOND)
    for backend in ("SyncTensor[SlowDoubleOnSecond]", "S[GpuTensor,SlowDoubleOnSecond,SyncTensor]"):
        result = pipe(backend, device="cuda:1")({"data": data})["result"]
        with torch.cuda.stream(torch.cuda.Stream(SECOND)):
            assert result.sum().item() == 2 << 20


def test_tensors_are_moved_from_one_gpu_to_the_other(pipe):
    moved = pipe("S[GpuTensor,TorchModel,SyncTensor]", factory="helpers:Double", device="cuda:1")
    for value in range(20):
        data = torch.zeros(1, 1 << 16, device="cuda:0")
        torch.cuda._sleep(10_000_000)
        data.fill_(value)  # still queued when the pipe is called
        assert (moved({"data": data})["result"] == 2 * value).all()
    with pytest.raises(hami.DataTypeError) as raised:
        pipe("TorchModel", factory="helpers:Double", device="cuda:1")({"data": torch.zeros(1, 2, device="cuda:0")})
    assert message(raised) == (
        "TorchModel takes a tensor on cuda:1, got float32 [1, 2] on cuda:0; "
        'put GpuTensor before it, or set device = "cuda:0"'
    )


def test_a_closed_pipe_frees_its_memory_on_the_second_gpu(pipe):
    def once() -> None:
        model = pipe(
            "S[TorchModel,SyncTensor]", **CONV, device="cuda:1", graphs=[1, 8], row_shape=[3, 64, 64], instance_num=2
        )
        model({"data": torch.rand(1, 3, 64, 64, device=SECOND)})
        model.close()
        gc.collect()

    once()
    before = [torch.cuda.memory_allocated(index) for index in (0, 1)]
    for _ in range(5):
        once()
    assert torch.cuda.memory_allocated(0) == before[0]
    assert torch.cuda.memory_allocated(1) <= before[1] + (1 << 20)

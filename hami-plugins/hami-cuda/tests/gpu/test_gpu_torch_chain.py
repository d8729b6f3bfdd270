"""Backends of hami-torch and of this package in one instance: one stream, and correct results for other consumers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hami
import pytest

np = pytest.importorskip("numpy", reason="numpy is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("hami_torch", reason="hami-torch is not installed")

N = 1 << 20
ENDS = ["SyncTensor", "StreamGuard", "Identity"]


@pytest.fixture(autouse=True)
def _backends():
    from hami_torch.backend import TensorBackend

    @hami.register
    class SlowDouble(TensorBackend):
        """Doubles its data on the current stream after slow work, and notes the stream."""

        def init(self, options):
            super().init(options)
            self.shared = options

        def run(self, batch):
            for item, tensor in self.read(batch):
                item["streams"] = [torch.cuda.current_stream().cuda_stream, self.shared["stream.cuda:0"]]
                torch.cuda._sleep(50_000_000)
                self.give(item, tensor * 2)


def run(pipe: Any, value: float) -> dict[str, Any]:
    return pipe({"data": np.full((1, N), value, np.float32)})


@pytest.mark.parametrize("end", ENDS)
def test_native_and_torch_backends_of_an_instance_share_a_stream(end):
    with hami.pipe(f"S[hami-cuda::GpuTensor,SlowDouble,{end}]") as pipe:
        current, shared = run(pipe, 1)["streams"]
    assert current == shared != 0


@pytest.mark.parametrize("end", ENDS)
def test_results_are_complete_for_torch_on_the_default_stream(end):
    with hami.pipe(f"S[hami-cuda::GpuTensor,SlowDouble,{end}]") as pipe:
        for value in range(1, 6):
            result = run(pipe, value)["result"]
            again = result + 1
            del result  # its memory must not be reused before the addition has read it
            torch.empty((1, N), device="cuda").fill_(7)
            run(pipe, 99)
            assert again.sum().item() == (2 * value + 1) * N


def test_results_are_complete_for_native_backends_after_torch():
    with hami.pipe("S[hami-cuda::GpuTensor,SlowDouble,hami-cuda::CpuTensor]") as pipe:
        for value in range(1, 6):
            assert (hami.to_numpy(run(pipe, value)["result"]) == 2 * value).all()


def test_another_instance_reads_complete_results():
    with hami.pipe("S[hami-cuda::GpuTensor,SlowDouble]") as first, hami.pipe("hami-cuda::CpuTensor") as second:
        for value in range(1, 6):
            result = second({"data": run(first, value)["result"]})["result"]
            assert (hami.to_numpy(result) == 2 * value).all()


def test_data_of_torch_on_the_default_stream_is_complete_before_it_is_read():
    with hami.pipe("S[hami-cuda::GpuTensor,SlowDouble,SyncTensor]") as pipe:
        for value in range(1, 6):
            data = torch.zeros((1, N), device="cuda")
            torch.cuda._sleep(200_000_000)
            data.fill_(value)
            result = pipe({"data": data})["result"]
            del data
            torch.empty((1, N), device="cuda").fill_(7)
            assert result.sum().item() == 2 * value * N


@pytest.mark.parametrize("end", ENDS)
def test_many_threads_and_instances_never_mix_up_their_data(end):
    config = {"backend": f"S[hami-cuda::GpuTensor,TorchModel,{end}]", "factory": "torch.nn:Identity", "batched": True}
    with hami.pipe({**config, "max": 8, "instance_num": 3}) as pipe, ThreadPoolExecutor(16) as threads:

        def ask(number: int) -> float:
            data = np.full((1, 4000 + 16 * (number % 5)), number, np.float32)
            return (torch.as_tensor(pipe({"data": data})["result"]) - number).abs().max().item()

        assert set(threads.map(ask, range(600))) == {0.0}


def test_device_memory_is_flat_over_many_pipes():
    def cycle() -> None:
        with hami.pipe({"backend": "S[hami-cuda::GpuTensor,SlowDouble,SyncTensor]", "instance_num": 2}) as pipe:
            run(pipe, 1)

    for _ in range(3):
        cycle()
    torch.cuda.synchronize()
    before, _ = torch.cuda.mem_get_info()
    for _ in range(40):
        cycle()
    torch.cuda.synchronize()
    assert before - torch.cuda.mem_get_info()[0] <= 16 << 20

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
    TensorBackend = pytest.importorskip("hami_torch.backend").TensorBackend

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


def test_a_batch_is_concatenated_run_by_torch_and_split():
    config = {"backend": "CatSplit[S[GpuTensor,CatTensor],TorchModel,SplitTensor]", "factory": "torch.nn:Identity"}
    with hami.pipe({**config, "batched": True, "max": 4, "batching": "greedy"}) as pipe:
        requests = pipe([{"data": np.full((rows, 2), rows, np.float32)} for rows in (1, 3, 2)])
    results = [torch.from_dlpack(request["result"]) for request in requests]
    assert [result.tolist() for result in results] == [[[float(rows)] * 2] * rows for rows in (1, 3, 2)]
    assert all(result.is_cuda for result in results)


def test_fix_tensor_moves_arrays_to_the_gpu_of_the_model():
    config = {"backend": "S[FixTensor,TorchModel]", "factory": "torch.nn:Identity", "row_shape": [3, 4, 5]}
    with hami.pipe(config) as pipe:
        result = torch.from_dlpack(pipe({"data": np.ones((4, 5, 3), np.uint8)})["result"])
    assert (result.device, result.shape, result.dtype) == (torch.device("cuda:0"), (1, 3, 4, 5), torch.float32)
    assert result.unique().tolist() == [1]


@pytest.mark.parametrize("backend", ["SoftmaxTensor", "ArgMaxTensor", "TopKTensor(3)"])
def test_scores_of_torch_on_the_gpu_are_those_on_the_cpu(backend):
    scores = torch.randint(0, 5, (16, 100)).float()
    with hami.pipe(backend) as pipe:
        on_gpu, on_cpu = pipe({"data": scores.cuda()})["result"], pipe({"data": scores})["result"]
    parts = (on_gpu, on_cpu) if isinstance(on_gpu, dict) else ({"": on_gpu}, {"": on_cpu})
    for computed, expected in zip(*(part.values() for part in parts), strict=True):
        torch.testing.assert_close(torch.from_dlpack(computed).cpu(), torch.from_dlpack(expected))

"""Stream order on a GPU: inputs, results, and no unnecessary waits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import hami
import pytest
import torch

from hami_torch.backend import TensorBackend

N = 1 << 20


@pytest.fixture(autouse=True)
def _backends(slow_work):
    @hami.register
    class SlowDouble(hami.Backend):
        """Doubles its input on the current stream after slow work."""

        thread = "concurrent"

        def forward(self, batch):
            for item in batch:
                slow_work()
                item["result"] = item["data"] * 2

    @hami.register
    class RecordStream(hami.Backend):
        thread = "concurrent"

        def forward(self, batch):
            for item in batch:
                item["stream"] = torch.cuda.current_stream().cuda_stream
                item["result"] = item["data"]


@pytest.mark.parametrize(
    "backend",
    ["SyncTensor[SlowDouble]", "S[GpuTensor,SlowDouble,SyncTensor]", "S[GpuTensor,SlowDouble,SyncTensor(wait=sleep)]"],
)
def test_results_of_sync_tensor_are_complete(pipe, backend):
    result = pipe(backend)({"data": torch.ones(N, device="cuda")})["result"]
    with torch.cuda.stream(torch.cuda.Stream()):  # a stream that is not ordered with anything
        assert result.sum().item() == 2 * N


@pytest.mark.parametrize(
    "backend",
    ["StreamGuard[SlowDouble]", "S[GpuTensor,SlowDouble,StreamGuard]", "With[StreamPool(2),SlowDouble]", "SlowDouble"],
)
def test_results_of_a_guard_are_ordered_with_the_callers_stream(pipe, backend):
    guarded = pipe(backend)
    for _ in range(3):
        result = guarded({"data": torch.ones(N, device="cuda")})["result"]
        again = result + 1
        del result  # its memory must not be reused before the addition has read it
        torch.empty(N, device="cuda").fill_(7)
        assert again.sum().item() == 3 * N


@pytest.mark.parametrize("backend", ["StreamGuard[SlowDouble]", "S[GpuTensor,SlowDouble,StreamGuard]"])
def test_a_result_taken_through_dlpack_is_ordered_with_the_consumers_stream(pipe, backend):
    result = pipe(backend)({"data": torch.ones(N, device="cuda")})["result"]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        assert torch.from_dlpack(result).sum().item() == 2 * N


def test_cupy_arrays_are_accepted_and_cupy_reads_results(pipe):
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    result = pipe("StreamGuard[S[GpuTensor,SlowDouble]]")({"data": cupy.ones(N, cupy.float32)})["result"]
    assert float(cupy.from_dlpack(result).sum()) == 2 * N


@pytest.mark.parametrize(
    "backend", ["S[TorchModel,SyncTensor]", "SyncTensor[TorchModel]", "S[TorchModel,CpuTensor,SyncTensor]"]
)
def test_the_pipe_waits_for_data_that_is_still_being_computed(pipe, slow_work, backend):
    doubled = pipe(backend, factory="helpers:Double")
    for value in range(1, 4):
        data = torch.zeros(1, 512, 512, device="cuda")
        slow_work()
        data.fill_(value)
        result = doubled({"data": data})["result"]
        assert result.sum().item() == 2 * value * 512 * 512


@pytest.mark.parametrize("graphs", [[], [1, 4]])
@pytest.mark.parametrize("end", ["SyncTensor", "StreamGuard"])
def test_input_memory_is_not_reused_before_the_model_has_read_it(pipe, slow_work, end, graphs):
    config = {"factory": "helpers:Double", "max": 4, "batching": "greedy", "row_shape": [N], "graphs": graphs}
    model = pipe(f"S[TorchModel,{end}]", **config)
    for value in range(1, 4):
        data = [torch.zeros(1, N, device="cuda") for _ in range(4)]
        slow_work()
        for each in data:
            each.fill_(value)
        results = [request["result"] for request in model([{"data": each} for each in data])]
        del data, each
        for _ in range(4):
            torch.empty(1, N, device="cuda").fill_(7)
        assert [result.sum().item() for result in results] == [2 * value * N] * 4


def test_memory_passed_between_nodes_is_not_reused_before_it_is_read(pipe, slow_work):
    """The first node goes on to other requests, and only the second node still references the tensor."""

    @hami.register
    class ReadsLate(TensorBackend):
        def run(self, batch):
            for item, tensor in self.read(batch):
                slow_work()
                self.give(item, tensor.double())

    nodes = hami.pipe(
        {
            "first": {"backend": "S[TorchModel,SyncTensor]", "factory": "helpers:Double", "next": "second"},
            "second": {"backend": "S[ReadsLate,StreamGuard]"},
        }
    )
    with nodes, ThreadPoolExecutor(4) as threads:
        ask = lambda n: nodes({"data": torch.full((1, N), float(n), device="cuda")})["result"].sum().item()  # noqa: E731
        assert list(threads.map(ask, range(12))) == [2 * n * N for n in range(12)]


@pytest.mark.parametrize(
    "backend", ["SyncTensor[RecordStream]", "S[RecordStream,SyncTensor]", "S[RecordStream,StreamGuard]"]
)
def test_each_instance_has_its_own_stream_and_never_the_default_stream(pipe, backend):
    guarded = pipe(backend, instance_num=4)
    with ThreadPoolExecutor(16) as threads:
        seen = {request["stream"] for request in threads.map(lambda _: guarded({"data": 0}), range(400))}
    assert 0 not in seen
    assert len(seen) <= 4
    guarded.close()
    again = pipe(backend, instance_num=4)
    with ThreadPoolExecutor(16) as threads:
        later = {request["stream"] for request in threads.map(lambda _: again({"data": 0}), range(400))}
    assert len(seen | later) <= 4  # streams are released and reused


PATH = "S[GpuTensor,TorchModel,StreamGuard]"
PATH_CONFIG = {
    "factory": "torch.nn:Conv2d",
    "arguments": ["in_channels=3", "out_channels=4", "kernel_size=3"],
    "batched": True,
    "max": 4,
    "batching": "greedy",
}


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")  # torch warns that it is a prototype
@pytest.mark.parametrize("graphs", [[], [1, 2, 4]])
def test_no_backend_of_the_path_makes_the_cpu_wait(pipe, graphs):
    path = pipe(PATH, row_shape=[3, 32, 32], graphs=graphs, **PATH_CONFIG)
    data = [torch.rand(1, 3, 32, 32, device="cuda") for _ in range(4)]
    path([{"data": each} for each in data])
    torch.cuda.synchronize()
    try:
        torch.cuda.set_sync_debug_mode("error")
        requests = path([{"data": each} for each in data])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert {request["result"].shape for request in requests} == {(1, 4, 30, 30)}


@pytest.mark.parametrize("end", ["SyncTensor", "StreamGuard"])
def test_many_threads_and_instances_never_mix_up_their_data(pipe, end):
    path = pipe(
        f"S[GpuTensor,TorchModel,{end}]",
        factory="helpers:Double",
        batched=True,
        max=8,
        instance_num=3,
    )

    def ask(number: int) -> float:
        data = torch.full((1, 3, 16 + number % 5, 16), float(number))
        result = path({"data": data})["result"]
        return (result - 2 * number).abs().max().item()

    with ThreadPoolExecutor(16) as threads:
        assert set(threads.map(ask, range(600))) == {0.0}

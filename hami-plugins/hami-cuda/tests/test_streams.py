"""SyncTensor, StreamGuard and StreamPool on the fake driver."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hami
import pytest

np = pytest.importorskip("numpy", reason="numpy is not installed")
pytestmark = pytest.mark.usefixtures("fake")

GUARDED = [
    "S[GpuTensor,hami-cuda::NormalizeTensor(scale=2),StreamGuard]",
    "StreamGuard[S[GpuTensor,hami-cuda::NormalizeTensor(scale=2)]]",
    "With[StreamPool(2),S[GpuTensor,hami-cuda::NormalizeTensor(scale=2)]]",
    "SyncTensor[S[GpuTensor,hami-cuda::NormalizeTensor(scale=2)]]",
]


def image(value: int) -> Any:
    return np.full((1, 3, 2, 2), value, np.uint8)


def on_cpu(result: Any) -> Any:
    with hami.pipe("hami-cuda::CpuTensor") as back:
        return hami.to_numpy(back({"data": result})["result"])


@pytest.mark.parametrize("backend", GUARDED)
@pytest.mark.parametrize("instance_num", [1, 3])
def test_every_guard_returns_the_result_of_its_item(backend, instance_num):
    requests = [{"data": image(value)} for value in range(20)]
    with hami.pipe({"backend": backend, "max": 4, "instance_num": instance_num}) as pipe:
        pipe(requests)
    for value, request in enumerate(requests):
        assert (on_cpu(request["result"]) == 2 * value).all()


@pytest.mark.parametrize("backend", GUARDED)
def test_a_request_that_fails_inside_a_guard_fails_alone(backend):
    requests = [{"data": image(1)}, {"data": "text"}, {"data": image(3)}]
    config = {"backend": backend, "max": 3, "batching": "greedy"}
    with hami.pipe(config) as pipe, pytest.raises(hami.BatchError) as raised:
        pipe(requests)
    assert [index for index, _ in raised.value.errors] == [1]
    assert (on_cpu(requests[2]["result"]) == 6).all()


def test_streams_are_used_again_by_later_pipes(fake):
    def cycle() -> None:
        with hami.pipe({"backend": "S[GpuTensor,SyncTensor]", "instance_num": 3}) as pipe:
            pipe([{"data": image(value)} for value in range(6)])

    cycle()
    before = fake.fake_streams()
    for _ in range(20):
        cycle()
    assert fake.fake_streams() == before


def test_a_guard_makes_the_default_stream_wait_and_not_the_cpu(fake, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_BUSY", "1")  # a question whether work is done does not count as a wait
    with hami.pipe("S[GpuTensor,StreamGuard]") as pipe:
        pipe({"data": image(1)})
        waits, stream_waits = fake.fake_waits(), fake.fake_stream_waits()
        pipe({"data": image(1)})
        assert fake.fake_waits() == waits
        assert fake.fake_stream_waits() == stream_waits + 1


def test_sync_tensor_sleeps_at_once_where_its_last_waits_were_long(fake, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_BUSY", "1")  # work is never done until someone waits without asking
    monkeypatch.setenv("FAKE_CUDA_TAKES", "1000")  # and then takes so many microseconds
    with hami.pipe("S[GpuTensor,SyncTensor]") as pipe:
        before = fake.fake_queries()
        pipe({"data": image(1)})
        assert fake.fake_queries() > before
        for _ in range(3):
            pipe({"data": image(1)})
        before = fake.fake_queries()
        pipe({"data": image(1)})
        assert fake.fake_queries() == before


def test_the_results_of_a_pool_are_ordered_with_other_streams(fake):
    with hami.pipe("With[StreamPool(2),GpuTensor]") as pipe:
        result = pipe({"data": image(1)})["result"]
        before = fake.fake_stream_waits()
        result.__dlpack__(stream=1)
        assert fake.fake_stream_waits() == before + 1


def test_a_pool_limits_the_number_of_concurrent_calls():
    """Each call waits inside for a second one; a third call waits outside."""
    both, lock = threading.Barrier(2), threading.Lock()
    seen = {"inside": 0, "peak": 0}

    @hami.register
    class MeetsAnotherCall(hami.Backend):
        thread = "concurrent"

        def forward(self, batch):
            with lock:
                seen["inside"] += 1
                seen["peak"] = max(seen["peak"], seen["inside"])
            both.wait(30)
            both.wait(30)
            with lock:
                seen["inside"] -= 1
            for item in batch:
                item["result"] = item["data"]

    @hami.register
    class CallsFromFourThreads(hami.Backend):
        child_count = (1, 1)

        def forward(self, batch):
            with ThreadPoolExecutor(4) as threads:
                for item in batch:
                    calls = [threads.submit(self.children[0], {"data": number}) for number in range(4)]
                    item["result"] = [call.result()["result"] for call in calls]

    with hami.pipe("CallsFromFourThreads[With[StreamPool(2),MeetsAnotherCall]]") as pipe:
        assert pipe({"data": 0})["result"] == [0, 1, 2, 3]
    assert seen["peak"] == 2


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("With[StreamPool(0),GpuTensor]", 'StreamPool: "n" must be at least 1, got 0'),
        ("StreamGuard(device=cuda:7)", 'StreamGuard: device "cuda:7" is not available: this process sees cuda:0'),
    ],
)
def test_a_mistake_in_the_configuration_is_an_error_of_the_build(backend, message):
    with pytest.raises(hami.ConfigError) as raised:
        hami.pipe(backend)
    assert message in str(raised.value)

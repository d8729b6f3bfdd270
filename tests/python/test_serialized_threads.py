"""`thread = "serialized"`: an instance runs one call at a time, on every path that leads to it."""

from __future__ import annotations

import threading
from concurrent import futures
from typing import Any

import hami
import pytest
from running import TIMEOUT, Gate, backend


class ConcurrencyProbe:
    """A backend that counts how many threads are in one of its instances, and waits at a gate."""

    def __init__(self, name: str = "TestProbe", **attributes: Any) -> None:
        self.gate = Gate()
        self.most = 0
        self._running = 0
        self._lock = threading.Lock()
        backend(self._forward, name, **{"thread": "serialized", **attributes})

    def _forward(self, batch: list[Any]) -> None:
        with self._lock:
            self._running += 1
            self.most = max(self.most, self._running)
        self.gate.enter()
        with self._lock:
            self._running -= 1
        for item in batch:
            item["result"] = item["data"]


NODE = "List[InstancesRegister[Reflect[backend]], Register[DI[Batching, InstanceDispatcher]]]"
HOOKED = NODE.replace("InstanceDispatcher", "InstanceDispatcher[{}]")


@pytest.mark.parametrize(
    "config",
    [
        {"n": {"backend": "TestProbe"}, "a": {"backend": "Forward[n.0]"}},
        {"n": {"backend": "S[Identity,TestProbe]"}, "a": {"backend": "Forward[n.0]"}},
        {"n": {"backend": "Identity"}, "entrypoint": "S[TestProbe,Forward[node.n]]"},
        {"n": {"backend": "Identity", "node_entrypoint": HOOKED.format("TestProbe"), "instance_num": 2}},
        {"n": {"backend": "Identity", "node_entrypoint": HOOKED.format("Identity,TestProbe"), "instance_num": 2}},
    ],
    ids=["direct to an instance", "to a sequence", "entrypoint", "first hook", "second hook"],
)
def test_one_call_at_a_time(config: dict[str, Any]) -> None:
    cls = ConcurrencyProbe()
    starts = [{"node_name": name} for name in ("n", "a")] if "a" in config else [{}, {}]
    with hami.pipe(config) as pipe, futures.ThreadPoolExecutor(2) as threads:
        first = threads.submit(pipe, {"data": 1, **starts[0]})
        cls.gate.wait_for_arrival()
        second = threads.submit(pipe, {"data": 2, **starts[1]})
        try:
            with pytest.raises(futures.TimeoutError):  # it has not arrived yet, or waits for the first call
                second.result(0.05)
            assert cls.most == 1
        finally:
            cls.gate.open()
        assert [one.result(TIMEOUT)["result"] for one in (first, second)] == [1, 2]
    assert cls.most == 1


def test_a_backend_that_calls_itself_directly_gets_an_error() -> None:
    class Again(hami.Backend):
        thread = "serialized"
        child_count = (1, 1)

        def forward(self, batch: list[Any]) -> None:
            self.children[0].forward(batch)

    hami.register("TestAgain")(Again)
    with hami.pipe({"n": {"backend": "TestAgain[Forward[n.0]]"}}) as pipe, pytest.raises(hami.ReentrantCall) as raised:
        pipe({"data": 1})
    assert str(raised.value).splitlines()[0] == "TestAgain called itself; it runs one call at a time"


@pytest.mark.parametrize("non_blocking", [False, True])
def test_calls_are_also_serialized_for_threads_that_keep_the_gil(non_blocking: bool) -> None:
    cls = ConcurrencyProbe(non_blocking=non_blocking)
    cls.gate.open()
    config = {"n": {"backend": "TestProbe"}, "a": {"backend": "Forward[n.0]"}}
    with hami.pipe(config) as pipe, futures.ThreadPoolExecutor(4) as threads:

        def ask(name: str) -> int:
            return sum(pipe({"data": 1, "node_name": name})["result"] for _ in range(200))

        assert list(threads.map(ask, "anan", timeout=TIMEOUT)) == [200] * 4
    assert cls.most == 1

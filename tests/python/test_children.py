"""Children of a Python backend: a request passed twice, a child that is still running, and a child used in close."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import hami
import pytest
from running import TIMEOUT, each, gated


@pytest.mark.parametrize("child", ["TestDouble", "Forward[node.b]", "StateFul[TestDouble]"])
def test_passing_a_request_to_a_child_twice_is_an_error(child: str) -> None:
    each(lambda number: 2 * number, "TestDouble")

    class Twice(hami.Backend):
        child_count = (1, 1)

        def forward(self, batch: list[Any]) -> None:
            self.children[0].forward([batch[0], batch[0]])

    hami.register("TestTwice")(Twice)
    nodes = {"a": {"backend": f"TestTwice[{child}]"}, "b": {"backend": "TestDouble"}}
    refused = pytest.raises(hami.DataTypeError, match="takes each request once, got the same request twice")
    with hami.pipe({**nodes, "dag_entrypoint": "Forward[node.a]"}) as pipe, refused:
        pipe({"data": 1, "req_id": "r"}, timeout=TIMEOUT)


def test_a_request_does_not_complete_while_a_child_still_runs_it() -> None:
    """The backend runs its child on another thread and fails its requests before the child has returned."""
    child = gated("TestGatedChild")
    gave_up, ended = threading.Event(), []

    class GivesUp(hami.Backend):
        child_count = (1, 1)

        def forward(self, batch: list[Any]) -> None:
            running = threads.submit(self.children[0].forward, batch)
            running.add_done_callback(ended.append)
            child.gate.wait_for_arrival()
            for item in batch:
                item.fail(ValueError("gave up"))
            gave_up.set()

    hami.register("TestImpatient")(GivesUp)
    with ThreadPoolExecutor(1) as threads, hami.pipe("TestImpatient[TestGatedChild]") as pipe:
        outcome: Future[Any] = pipe.submit({"data": 1})
        seen: list[int] = []
        outcome.add_done_callback(lambda _: seen.append(len(child.seen)))
        assert gave_up.wait(TIMEOUT)
        assert not seen
        child.gate.open()
        assert isinstance(outcome.exception(TIMEOUT), ValueError)
    assert len(ended) == 1


def test_a_child_in_another_node_is_already_closed_when_a_backend_is_closed() -> None:
    each(lambda number: number, "TestSame", max=3)
    seen: list[Any] = []

    class Flushes(hami.Backend):
        child_count = (1, 1)

        def forward(self, batch: list[Any]) -> None:
            self.children[0].forward(batch)

        def close(self) -> None:
            with pytest.raises(hami.PipeClosed) as raised:
                self.children[0].forward([])
            seen.extend([str(raised.value), self.children[0].max])

    hami.register("TestFlushes")(Flushes)
    nodes = {"a": {"backend": "TestFlushes[Forward[node.b]]"}, "b": {"backend": "TestSame"}}
    with hami.pipe({**nodes, "dag_entrypoint": "Forward[node.a]"}) as pipe:
        assert pipe({"data": 1})["result"] == 1
    assert seen == ["the pipe is closed", None]

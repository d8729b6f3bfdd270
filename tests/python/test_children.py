"""What a Python backend may do with those in its brackets: with a request twice, late, and in its close."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import hami
import pytest
from running import PATIENCE, each, gated


@pytest.mark.parametrize("child", ["TestDouble", "Forward[node.b]", "StateFul[TestDouble]"])
def test_a_child_takes_each_request_once(child: str) -> None:
    each(lambda number: 2 * number, "TestDouble")

    class Twice(hami.Backend):
        child_count = (1, 1)

        def forward(self, batch: list[Any]) -> None:
            self.children[0].forward([batch[0], batch[0]])

    hami.register("TestTwice")(Twice)
    nodes = {"a": {"backend": f"TestTwice[{child}]"}, "b": {"backend": "TestDouble"}}
    refused = pytest.raises(hami.DataTypeError, match="takes each request once, got the same request twice")
    with hami.pipe({**nodes, "dag_entrypoint": "Forward[node.a]"}) as pipe, refused:
        pipe({"data": 1, "req_id": "r"}, timeout=PATIENCE)


def test_what_a_child_still_has_stays_where_it_is() -> None:
    """The backend runs its child on a thread of its own and gives up; requests do not end under the child."""
    child = gated("TestGatedChild")
    gave_up, ended = threading.Event(), []

    class Impatient(hami.Backend):
        child_count = (1, 1)

        def forward(self, batch: list[Any]) -> None:
            running = threads.submit(self.children[0].forward, batch)
            running.add_done_callback(ended.append)
            child.gate.wait_for_arrival()
            for item in batch:
                item.fail(ValueError("gave up"))
            gave_up.set()

    hami.register("TestImpatient")(Impatient)
    with ThreadPoolExecutor(1) as threads, hami.pipe("TestImpatient[TestGatedChild]") as pipe:
        outcome: Future[Any] = pipe.submit({"data": 1})
        seen: list[int] = []
        outcome.add_done_callback(lambda _: seen.append(len(child.seen)))
        assert gave_up.wait(PATIENCE)
        assert not seen
        child.gate.open()
        assert isinstance(outcome.exception(PATIENCE), ValueError)
    assert len(ended) == 1


def test_the_child_of_another_node_is_gone_when_a_backend_is_closed() -> None:
    each(lambda number: number, "TestSame", max=3)
    told: list[Any] = []

    class Flushes(hami.Backend):
        child_count = (1, 1)

        def forward(self, batch: list[Any]) -> None:
            self.children[0].forward(batch)

        def close(self) -> None:
            with pytest.raises(hami.PipeClosed) as raised:
                self.children[0].forward([])
            told.extend([str(raised.value), self.children[0].max])

    hami.register("TestFlushes")(Flushes)
    nodes = {"a": {"backend": "TestFlushes[Forward[node.b]]"}, "b": {"backend": "TestSame"}}
    with hami.pipe({**nodes, "dag_entrypoint": "Forward[node.a]"}) as pipe:
        assert pipe({"data": 1})["result"] == 1
    assert told == ["the pipe is closed", None]

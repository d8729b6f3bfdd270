"""Children of a Python backend: a request passed twice, a child that is still running, and a child used in close."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import hami
import pytest
from running import TIMEOUT, Gate, backend, each, gated


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


@pytest.mark.parametrize("raises", [False, True])
def test_a_dependency_cannot_be_used_after_the_call_that_lent_it(raises: bool) -> None:
    kept: list[hami.types.BackendHandle] = []
    each(lambda number: number, "TestSame", max=3)

    class Keeps(hami.Backend):
        def forward_with_dep(self, batch: list[Any], dependency: hami.types.BackendHandle) -> None:
            kept.append(dependency)
            assert (dependency.min, dependency.max) == (1, 3)
            if raises:
                raise ValueError("not today")
            dependency.forward(batch)

    hami.register("TestKeeps")(Keeps)
    with hami.pipe("With[TestKeeps,TestSame]") as pipe:
        if raises:
            with pytest.raises(ValueError, match="not today"):
                pipe({"data": 1})
        else:
            assert pipe({"data": 1})["result"] == 1
        _check_ended(
            kept[0],
            hami.RequestError,
            "this backend can be used only during forward_with_dep, which has returned or raised",
        )


@pytest.mark.parametrize("expression", ["TestKeeps[LoopCondition[TestSame]]", "DI[TestKeeps,TestSame]"])
def test_a_child_cannot_be_used_after_its_pipe_was_closed(expression: str) -> None:
    kept: list[hami.types.BackendHandle] = []
    each(lambda number: number, "TestSame", max=3)

    class Keeps(hami.Backend):
        child_count = (0, 1)

        def init(self, options: hami.types.DictView) -> None:
            kept.extend(self.children)

        def inject_dependency(self, dependency: hami.types.BackendHandle) -> None:
            kept.append(dependency)

        def forward(self, batch: list[Any]) -> None:
            kept[0].forward(batch)

    hami.register("TestKeeps")(Keeps)
    with hami.pipe(expression) as pipe:
        assert pipe({"data": 1})["result"] == 1
    backend(lambda batch: kept[0].forward(batch), "TestUsesKept")
    message = f"the pipe of the backend {'LoopCondition' if 'Loop' in expression else 'TestSame'} is closed"
    _check_ended(kept[0], hami.PipeClosed, message)
    with hami.pipe("TestUsesKept") as other, pytest.raises(hami.PipeClosed, match=message):
        other({"data": 1})


def _check_ended(child: hami.types.BackendHandle, error: type[hami.Error], message: str) -> None:
    for use in (lambda: child.min, lambda: child.max, lambda: child.forward([])):
        with pytest.raises(error) as raised:
            use()
        assert (type(raised.value), str(raised.value)) == (error, message)


def test_a_dependency_exists_until_every_thread_is_done_with_it() -> None:
    gate, ended = Gate(), threading.Event()
    backend(lambda batch: gate.enter(), "TestWaitsAtGate")

    class UsesInThread(hami.Backend):
        def forward_with_dep(self, batch: list[Any], dependency: hami.types.BackendHandle) -> None:
            running.append(threads.submit(dependency.forward, []))
            gate.wait_for_arrival()
            batch[0]["result"] = 1
            ended.set()

    hami.register("TestUsesInThread")(UsesInThread)
    running: list[Future[None]] = []
    with ThreadPoolExecutor(1) as threads, hami.pipe("With[TestUsesInThread,TestWaitsAtGate]") as pipe:
        future = pipe.submit({"data": 1})
        assert ended.wait(TIMEOUT)
        assert not future.done()
        gate.open()
        assert future.result(TIMEOUT)["result"] == 1
        assert running[0].result(TIMEOUT) is None


@pytest.mark.parametrize("returns", [False, True])
def test_close_waits_for_a_child_in_use_and_abandons_it_after_the_grace_period(returns: bool) -> None:
    gate = Gate()
    closed: list[str] = []

    class WaitsAtGate(hami.Backend):
        thread = "concurrent"

        def forward(self, batch: list[Any]) -> None:
            gate.enter()

        def close(self) -> None:
            closed.append("child")

    class Lends(hami.Backend):
        thread = "concurrent"
        child_count = (1, 1)

        def init(self, options: hami.types.DictView) -> None:
            kept.append(self.children[0])

        def forward(self, batch: list[Any]) -> None: ...

        def close(self) -> None:
            closed.append("parent")
            if returns:
                gate.open()

    kept: list[hami.types.BackendHandle] = []
    hami.register("TestWaitsAtGate")(WaitsAtGate)
    hami.register("TestLends")(Lends)
    pipe = hami.pipe("TestLends[TestWaitsAtGate]")
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(kept[0].forward, [])
        gate.wait_for_arrival()
        abandoned = pytest.warns(RuntimeWarning, match=r"were abandoned: TestWaitsAtGate in TestLends$")
        with contextlib.nullcontext() if returns else abandoned:
            pipe.close(timeout=0)
        gate.open()
        assert running.result(TIMEOUT) is None
    assert closed == (["parent", "child"] if returns else ["parent"])


def test_children_are_closed_with_their_pipe_even_if_python_code_keeps_them() -> None:
    kept: list[Any] = []
    closed: list[str] = []

    class Closes(hami.Backend):
        child_count = (0, 2)
        name: str

        def init(self, options: hami.types.DictView) -> None:
            kept.extend((self, *self.children))

        def forward(self, batch: list[Any]) -> None: ...

        def close(self) -> None:
            closed.append(self.name)

    hami.register("TestCloses")(Closes)
    hami.pipe("TestCloses(outer)[TestCloses(first),TestCloses(second)]").close()
    assert closed == ["outer", "second", "first"]

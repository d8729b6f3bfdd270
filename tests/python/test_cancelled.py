"""`request.cancelled`: a long-running backend can see that its result is no longer needed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import hami
import pytest
from running import TIMEOUT, Gate, backend


class Watch:
    """A backend that records `cancelled` of its batch when it starts and when the test releases it."""

    def __init__(self, name: str = "TestWatches", **attributes: Any) -> None:
        self._gate = Gate()
        self._started = threading.Event()
        self._ended = threading.Event()
        self.recorded: list[tuple[list[bool], list[bool]]] = []  # complete when the pipe is closed
        self.wait_for_start = self._gate.wait_for_arrival
        self.has_started = self._started.is_set
        self.release = self._gate.open
        backend(self._forward, name, **attributes)

    def wait_for_end(self) -> None:
        assert self._ended.wait(TIMEOUT)

    def _forward(self, batch: list[Any]) -> None:
        before = [item.cancelled for item in batch]
        self._started.set()
        self._gate.enter()
        self.recorded.append((before, [item.cancelled for item in batch]))
        self._ended.set()
        for item in batch:
            item["result"] = item["data"]


@pytest.mark.parametrize(
    "expression",
    [
        "TestWatches",
        "S[Identity,TestWatches,Identity]",
        "BackgroundThread[S[TestWatches]]",
        "HasKey(data)[TestWatches]",
        "LoopCondition(count=1)[TestWatches]",
        "CatSplit[Identity,TestWatches,Identity]",
        "FanOut[TestWatches]",
        "Filter[TestWatches,Identity]",
        "IoC[TestWatches;S[Identity,TestWatches]]",
    ],
)
def test_containers_pass_on_the_cancellation_of_a_future(expression: str) -> None:
    watch = Watch()
    with hami.pipe(expression) as pipe:
        future = pipe.submit({"data": ["one"]})
        watch.wait_for_start()
        assert future.cancel()
        watch.release()
    assert watch.recorded == [([False], [True])]


@pytest.mark.parametrize(
    "config",
    [
        {"a": {"backend": "Identity", "next": "b"}, "b": {"backend": "TestWatches"}},
        {
            "a": {"backend": "Identity", "next": "b,c"},
            "b": {"backend": "Identity", "next": "d"},
            "c": {"backend": "Identity", "next": "d"},
            "d": {"backend": "TestWatches", "map": "b[result:data],c[result:other]"},
        },
        {"a": {"backend": "FanOut[Forward[node.b]]", "next": []}, "b": {"backend": "TestWatches"}},
    ],
    ids=["hop", "join", "fan-out to a node"],
)
def test_graphs_pass_on_the_cancellation_of_a_future(config: dict[str, Any]) -> None:
    watch = Watch()
    if "FanOut" in config["a"]["backend"]:
        config = {**config, "entrypoint": "Forward[node.a]", "dag_entrypoint": "Forward[node.a]"}
    with hami.pipe(config) as pipe:
        future = pipe.submit({"data": ["one"]})
        watch.wait_for_start()
        assert future.cancel()
        watch.release()
    assert watch.recorded == [([False], [True])]


@pytest.mark.parametrize("how", ["call", "timeout", "deadline"])
def test_a_request_whose_deadline_passes_is_cancelled(how: str) -> None:
    watch = Watch()
    with hami.pipe("TestWatches") as pipe:
        while not watch.has_started():  # earlier requests expired before they started
            limits: dict[str, Any] = {"timeout": {"timeout": 0.02}, "deadline": {"deadline": time.monotonic() + 0.02}}
            future = pipe.submit({"data": 1, **limits.get(how, {})}, timeout=0.02 if how == "call" else None)
            with pytest.raises(hami.DeadlineExceeded):
                future.result(TIMEOUT)
        watch.release()
    assert watch.recorded[0][1] == [True]


def test_a_backend_reads_the_earliest_limit_and_the_priority_of_a_request() -> None:
    seen = []

    def forward(batch: list[Any]) -> None:
        seen.extend((item.deadline, item.priority) for item in batch)
        for item in batch:
            item["result"] = None

    backend(forward, "TestReadsLimits")
    with hami.pipe({"backend": "TestReadsLimits", "timeout": "500s"}) as pipe:
        begun = time.monotonic()
        pipe({"data": 1})
        pipe({"data": 1, "deadline": begun + 60.0, "timeout": 300.0}, timeout=400.0, priority=7)
        ended = time.monotonic()
    with hami.pipe("TestReadsLimits") as pipe:
        pipe({"data": 1, "priority": 254}, priority=7)
    assert begun + 500 <= seen[0][0] <= ended + 500
    assert seen[0][1] == 0
    assert seen[1] == (pytest.approx(begun + 60.0, abs=1e-3), 7)
    assert seen[2] == (None, 254)


def test_a_cancelled_task_cancels_its_request() -> None:
    watch = Watch()

    async def main(pipe: hami.Pipe) -> None:
        task = asyncio.create_task(pipe.acall({"data": 1}))
        await asyncio.to_thread(watch.wait_for_start)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with hami.pipe("TestWatches") as pipe:
        asyncio.run(main(pipe))
        watch.release()
    assert watch.recorded == [([False], [True])]


def test_co_batched_requests_of_a_cancelled_request_are_not_cancelled() -> None:
    watch = Watch(max=4)
    with hami.pipe("TestWatches") as pipe:
        futures = [pipe.submit({"data": 0})]
        watch.wait_for_start()
        futures += [pipe.submit({"data": number}) for number in (1, 2)]
        assert futures[0].cancel()
        watch.release()
        assert [future.result(TIMEOUT)["result"] for future in futures[1:]] == [1, 2]
    assert watch.recorded == [([False], [True]), ([False, False], [False, False])]


@pytest.mark.filterwarnings("ignore:these backends did not come back")
def test_a_close_that_gives_up_cancels_running_requests() -> None:
    watch = Watch()
    # No caller waits for the reposted request; the second request shows when the close gives up.
    with hami.pipe({"a": {"backend": "Repost[node.b,reply]"}, "b": {"backend": "TestWatches"}}) as pipe:
        assert pipe({"data": 1, "node_name": "a"})["result"] == 1
        watch.wait_for_start()
        waiting = pipe.submit({"data": 2, "node_name": "b"})
        closer = threading.Thread(target=pipe.close, args=(0,))
        closer.start()
        with pytest.raises(hami.PipeClosed):
            waiting.result(TIMEOUT)
        watch.release()
        watch.wait_for_end()
        closer.join(TIMEOUT)
    assert watch.recorded == [([False], [True])]


def test_cancelled_can_only_be_read_until_forward_returns() -> None:
    kept: list[Any] = []

    def forward(batch: list[Any]) -> None:
        kept.extend(batch)
        for item in batch:
            item["result"] = item.cancelled

    backend(forward, "TestKeepsViews")
    with hami.pipe("TestKeepsViews") as pipe:
        assert pipe({"data": 1})["result"] is False
    with pytest.raises(hami.RequestError, match="this request is no longer valid: the backend's forward has returned"):
        kept[0].cancelled  # noqa: B018


def _run_until_cancelled(leave: Callable[[Any], None], name: str = "TestUntilCancelled", **attributes: Any) -> None:
    """Register a backend that runs each request until it is cancelled and then calls `leave` with it."""

    def forward(batch: list[Any]) -> None:
        for item in batch:
            while not item.cancelled:
                os.sched_yield()
            leave(item)

    backend(forward, name, **attributes)


def _raise(_: Any) -> None:
    raise ValueError("stopped early")


LEAVES = {
    "a result": lambda item: item.update({"result": "late"}),
    "no result": lambda item: None,
    "an error": lambda item: item.fail(ValueError("stopped early")),
    "an exception": _raise,
}


@pytest.mark.parametrize("leave", LEAVES)
@pytest.mark.parametrize(
    "source", ["TestUntilCancelled", "S[TestUntilCancelled]", {"entrypoint": "S[Forward[node.n]]"}]
)
def test_a_backend_that_sees_the_cancellation_cannot_change_the_outcome(source: Any, leave: str) -> None:
    """Before the caller notices that the deadline has passed, the backend has often returned."""
    _run_until_cancelled(LEAVES[leave], thread="concurrent")
    nodes = source if isinstance(source, str) else {"n": {"backend": "TestUntilCancelled"}, **source}
    with hami.pipe(nodes) as pipe:
        for _ in range(50):
            for call in (pipe, lambda request, timeout: pipe.submit(request, timeout).result()):
                request: dict[str, Any] = {"data": 1}
                with pytest.raises(hami.DeadlineExceeded):
                    call(request, timeout=0.0002)
                assert "result" not in request


@pytest.mark.parametrize("leave", LEAVES)
def test_the_event_of_a_reposted_request_fails_with_its_cancellation(leave: str) -> None:
    """No caller waits for it, so only what the backend leaves can decide the outcome."""
    _run_until_cancelled(LEAVES[leave])
    nodes = {"a": {"backend": "Repost[node.b,reply]"}, "b": {"backend": "TestUntilCancelled"}}
    with hami.pipe(nodes) as pipe:
        reply = None
        while reply is None:  # earlier requests expired before they were reposted
            with contextlib.suppress(hami.DeadlineExceeded):
                reply = pipe({"data": 1, "node_name": "a", "timeout": 0.05})["reply"]
        assert reply.wait(TIMEOUT)
        assert isinstance(reply.exception(), hami.DeadlineExceeded)
    node = pipe.stats()["b"]
    assert (node.completed + node.failed, node.retried) == (0, 0)


@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_statistics_count_a_cancelled_request_that_a_backend_completed(how: str) -> None:
    watch = Watch()
    with hami.pipe({"n": {"backend": "TestWatches"}}) as pipe:
        future = pipe.submit({"data": 1})
        watch.wait_for_start()
        if how == "cancel":
            assert future.cancel()
        else:
            future = pipe.submit({"data": 2}, timeout=0.01)
            with pytest.raises(hami.DeadlineExceeded):
                future.result(TIMEOUT)
        watch.release()
    node = pipe.stats()["n"]
    counts = (node.submitted, node.completed, node.cancelled, node.expired)
    assert counts == ((1, 0, 1, 0) if how == "cancel" else (2, 1, 0, 1))


def test_a_batch_that_fails_does_not_run_its_cancelled_requests_again() -> None:
    ran: list[list[int]] = []
    first, both = Gate(), Gate()

    def forward(batch: list[Any]) -> None:
        ran.append([item["data"] for item in batch])
        if ran == [[0]]:
            first.enter()
        if len(batch) > 1:
            both.enter()
            raise ValueError("as a batch")
        batch[0]["result"] = batch[0]["data"]

    backend(forward, "TestFailsAsBatch", max=2)
    with hami.pipe({"n": {"backend": "TestFailsAsBatch", "batching": "greedy"}}) as pipe:
        futures = [pipe.submit({"data": 0})]
        first.wait_for_arrival()
        futures += [pipe.submit({"data": number}) for number in (1, 2)]
        first.open()
        both.wait_for_arrival()
        assert futures[1].cancel()
        both.open()
        assert [future.result(TIMEOUT)["result"] for future in (futures[0], futures[2])] == [0, 2]
    assert ran == [[0], [1, 2], [2]]


async def _acall(pipe: hami.Pipe) -> None:
    await pipe.acall({"data": 1})


NESTED: dict[str, Callable[[hami.Pipe], Any]] = {
    "call": lambda inner: inner({"data": 1}),
    "future": lambda inner: inner.submit({"data": 1}).result(),
    "map": lambda inner: list(inner.map([{"data": 1}, {"data": 2}])),
    "acall": lambda inner: asyncio.run(_acall(inner)),
}


@pytest.mark.parametrize("how", NESTED)
@pytest.mark.parametrize("depth", [1, 3])
def test_cancelling_a_request_ends_the_calls_that_its_backend_makes(how: str, depth: int) -> None:
    watch = Watch()
    outcomes: list[BaseException] = []
    ended = threading.Semaphore(0)
    with contextlib.ExitStack() as stack:
        pipe = stack.enter_context(hami.pipe("TestWatches"))
        for level in range(depth):

            def forward(batch: list[Any], inner: hami.Pipe = pipe) -> None:
                try:
                    NESTED[how](inner)
                except BaseException as error:
                    outcomes.append(error)
                    raise
                finally:
                    ended.release()

            backend(forward, f"TestCallsLevel{level}")
            pipe = stack.enter_context(hami.pipe(f"TestCallsLevel{level}"))
        future = pipe.submit({"data": 1})
        watch.wait_for_start()
        assert future.cancel()
        for _ in range(depth):
            assert ended.acquire(timeout=TIMEOUT)
        watch.release()
    assert [type(error).__name__ for error in outcomes] == ["CancelledError"] * depth
    assert watch.recorded[0] == ([False], [True])


def test_a_call_inside_a_batch_goes_on_until_all_its_requests_are_cancelled() -> None:
    watch, first, results = Watch(), Gate(), []
    ended = threading.Semaphore(0)
    with hami.pipe("TestWatches") as inner:

        def forward(batch: list[Any]) -> None:
            if batch[0]["data"] == 0:
                first.enter()
                return
            try:
                inner({"data": 1})
            except BaseException as error:
                results.append(type(error).__name__)
                raise
            finally:
                ended.release()

        backend(forward, "TestCallsForBatch", max=2)
        with hami.pipe({"n": {"backend": "TestCallsForBatch", "batching": "greedy"}}) as outer:
            futures = [outer.submit({"data": 0})]
            first.wait_for_arrival()
            futures += [outer.submit({"data": number}) for number in (1, 2)]
            first.open()
            watch.wait_for_start()
            assert futures[1].cancel()
            assert not ended.acquire(blocking=False)
            assert futures[2].cancel()
            assert ended.acquire(timeout=TIMEOUT)
            watch.release()
    assert results == ["CancelledError"]
    assert watch.recorded == [([False], [True])]


def test_a_call_that_begins_after_its_request_was_cancelled_does_not_run() -> None:
    gate, ran, outcomes = Gate(), [], []
    backend(ran.extend, "TestRecordsAny")
    with hami.pipe({"n": {"backend": "TestRecordsAny"}}) as inner:

        def forward(batch: list[Any]) -> None:
            gate.enter()
            try:
                inner({"data": 1})
            except BaseException as error:
                outcomes.append(type(error).__name__)
                raise

        backend(forward, "TestCallsLate")
        with hami.pipe("TestCallsLate") as outer:
            future = outer.submit({"data": 1})
            gate.wait_for_arrival()
            assert future.cancel()
            gate.open()
    assert outcomes == ["CancelledError"]
    assert ran == []


def test_a_submitted_call_goes_on_after_the_batch_that_made_it() -> None:
    """It belongs to the backend then: a later cancellation of other requests does not reach it."""
    watch, futures = Watch(), []
    with hami.pipe("TestWatches") as inner:

        def forward(batch: list[Any]) -> None:
            if batch[0]["data"] == 0:
                futures.append(inner.submit({"data": 1}))
                batch[0]["result"] = 0
            else:
                inner({"data": 2})

        backend(forward, "TestSubmitsInside")
        with hami.pipe("TestSubmitsInside") as outer:
            assert outer({"data": 0})["result"] == 0
            watch.wait_for_start()
            assert outer.submit({"data": 1}).cancel()
            watch.release()
            assert futures[0].result(TIMEOUT)["result"] == 1

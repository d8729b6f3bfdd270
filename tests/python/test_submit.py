"""Futures of `submit`: results, errors, cancellation, deadlines."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import signal
import threading
import weakref
from dataclasses import dataclass
from typing import Any

import hami
import pytest
from running import TIMEOUT, each, gated


def test_a_future_returns_the_same_dict() -> None:
    each(lambda number: number + 1, "TestAddOne")
    with hami.pipe("TestAddOne") as pipe:
        request = {"data": 1}
        future = pipe.submit(request)
        assert isinstance(future, concurrent.futures.Future)
        assert future.result(TIMEOUT) is request
        assert request["result"] == 2
        assert future.done()
        assert not future.cancelled()


def test_a_future_raises_the_exception_of_the_backend() -> None:
    def fail(_: Any) -> Any:
        raise ZeroDivisionError("by hand")

    each(fail, "TestFails")
    with hami.pipe("TestFails") as pipe:
        request = {"data": 1, "result": 0}
        with pytest.raises(ZeroDivisionError, match="by hand"):
            pipe.submit(request).result(TIMEOUT)
        assert "result" not in request


class NoErrors(Exception):
    """As an exception that is a list of errors, and has none: it is false."""

    def __len__(self) -> int:
        return 0


class Untested(Exception):
    def __bool__(self) -> bool:
        raise LookupError


@pytest.mark.parametrize("kind", [NoErrors, Untested])
def test_an_exception_that_is_false_or_cannot_be_tested_is_raised(kind: type[Exception]) -> None:
    def fail(data: int) -> None:
        raise kind

    async def gathered() -> list[Any]:
        return [part async for part in pipe.astream({"data": 0})]

    each(fail, "TestFails")
    with hami.pipe("TestFails") as pipe:
        with pytest.raises(hami.BatchError) as raised:
            pipe([{"data": 0}, {"data": 1}])
        assert [type(error) for _, error in raised.value.errors] == [kind, kind]
        for run in (
            lambda: pipe({"data": 0}),
            lambda: pipe.submit({"data": 0}).result(TIMEOUT),
            lambda: list(pipe.map([{"data": 0}, {"data": 1}])),
            lambda: list(pipe.stream({"data": 0})),
            lambda: asyncio.run(pipe.acall({"data": 0})),
            lambda: asyncio.run(gathered()),
        ):
            with pytest.raises(kind):
                run()


def test_wait_and_as_completed_work_on_the_futures() -> None:
    each(lambda number: number + 1, "TestAddOne")
    with hami.pipe({"backend": "TestAddOne", "max": 8}) as pipe:
        futures = [pipe.submit({"data": number}) for number in range(50)]
        done, pending = concurrent.futures.wait(futures, timeout=TIMEOUT)
        assert (len(done), len(pending)) == (50, 0)
        assert sorted(one.result()["result"] for one in concurrent.futures.as_completed(futures)) == [*range(1, 51)]


def test_cancelling_reaches_waiting_and_running_requests() -> None:
    cls = gated()
    with hami.pipe("TestGated") as pipe:
        running = pipe.submit({"data": 1})
        cls.gate.wait_for_arrival()
        waiting = pipe.submit({"data": 2})
        for future in (running, waiting):
            assert future.cancel()
            assert future.cancelled()
            with pytest.raises(concurrent.futures.CancelledError):
                future.result(TIMEOUT)
        concurrent.futures.wait([running, waiting], timeout=TIMEOUT)
        last = pipe.submit({"data": 3})
        cls.gate.open()
        assert last.result(TIMEOUT)["result"] == 103
        assert not last.cancel()
        assert cls.seen == [[1], [3]]


def test_a_timeout_expires_in_time_while_the_backend_is_busy() -> None:
    cls = gated()
    with hami.pipe("TestGated") as pipe:
        for one in (pipe.submit({"data": 1}, timeout=0.01), pipe.submit({"data": 2, "timeout": "10ms"})):
            with pytest.raises(hami.DeadlineExceeded):
                one.result(TIMEOUT)
        request: dict[str, Any] = {"data": 3, "result": "stale"}
        with pytest.raises(TimeoutError):
            pipe(request, timeout=0.01)
        assert request == {"data": 3}
        cls.gate.open()


def test_callbacks_run_once_and_may_submit_again() -> None:
    each(lambda number: number + 1, "TestAddOne")
    done = threading.Event()
    seen: list[int] = []
    with hami.pipe("TestAddOne") as pipe:

        def again(future: concurrent.futures.Future[dict[str, Any]]) -> None:
            seen.append(future.result()["result"])
            if len(seen) < 5:
                pipe.submit({"data": seen[-1]}).add_done_callback(again)
            else:
                done.set()

        pipe.submit({"data": 0}).add_done_callback(again)
        assert done.wait(TIMEOUT)
    assert seen == [1, 2, 3, 4, 5]


def test_a_pipe_may_be_closed_by_a_callback() -> None:
    each(lambda number: number + 1, "TestAddOne")
    pipe = hami.pipe("TestAddOne")
    closed = threading.Event()

    def close(_: Any) -> None:
        pipe.close()
        closed.set()

    pipe.submit({"data": 0}).add_done_callback(close)
    assert closed.wait(5)  # it does not wait for its own thread
    pipe.close()


@pytest.mark.parametrize(
    "how", ["TestCloses", "BackgroundThread[TestCloses]", "S[Identity,BackgroundThread[TestCloses]]"]
)
@pytest.mark.parametrize("thread", ["dedicated", "serialized"])
def test_a_pipe_may_be_closed_by_a_backend_while_it_runs(how: str, thread: str) -> None:
    pipes: list[hami.Pipe] = []

    def close(data: Any) -> Any:
        pipes[0].close()
        return data

    each(close, "TestCloses", thread=thread)
    with hami.pipe(how) as pipe:
        pipes.append(pipe)
        assert pipe.submit({"data": 1}).result(TIMEOUT)["result"] == 1  # the close finishes what is open


def test_a_future_and_its_request_are_freed_together() -> None:
    class Thing:
        pass

    each(lambda thing: None, "TestNone")
    with hami.pipe("TestNone") as pipe:
        thing = Thing()
        future = pipe.submit({"data": thing}, timeout=3600)
        future.result(TIMEOUT)
        pipe({"data": 1})
        gone = [weakref.ref(thing), weakref.ref(future)]
        del thing, future
        gc.collect()
        assert [one() for one in gone] == [None, None]


def test_submit_takes_only_one_dict() -> None:
    with (
        hami.pipe("Identity") as pipe,
        pytest.raises(hami.DataTypeError, match=r"^submit takes one dict such as .* got list$"),
    ):
        pipe.submit([])  # type: ignore[arg-type]


def test_submit_after_close_raises_pipe_closed() -> None:
    pipe = hami.pipe("Identity")
    pipe.close()
    with pytest.raises(hami.PipeClosed, match=r"^the pipe is closed$"):
        pipe.submit({"data": 1})
    with pytest.raises(hami.PipeClosed, match=r"^the pipe is closed$"):
        pipe({"data": 1})


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


class TakesNoNote(Exception):
    __notes__ = ()


@pytest.mark.parametrize("error", [Frozen(7), TakesNoNote("no")])
def test_an_exception_that_accepts_no_notes_is_raised_without_one(error: Exception) -> None:
    def fail(number: int) -> int:
        if number == 0:
            raise error
        return number

    each(fail, "TestFails", max=4)
    with hami.pipe("TestFails") as pipe:
        assert pipe.submit({"data": 0}).exception(TIMEOUT) is error
        with pytest.raises(type(error)):
            asyncio.run(asyncio.wait_for(pipe.acall({"data": 0}), TIMEOUT))
        requests = [{"data": number} for number in (1, 0, 2)]
        with pytest.raises(hami.BatchError) as raised:
            pipe(requests)
        assert raised.value.errors == [(1, error)]
        assert [request.get("result") for request in requests] == [1, None, 2]


class Interrupted(Exception):
    """Raises a signal while a note is added, so that its handler raises in the middle of the completion."""

    def add_note(self, note: str) -> None:
        if not hasattr(self, "raised"):
            self.raised = True
            signal.raise_signal(signal.SIGINT)


def test_a_signal_during_completion_loses_neither_the_signal_nor_the_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    import hami._runtime.future

    made: list[concurrent.futures.Future[Any]] = []

    class Noted(hami._runtime.future.RequestFuture):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    def fail(number: int) -> int:
        if number == 0:
            raise Interrupted("no")
        return number

    monkeypatch.setattr(hami._runtime.future, "RequestFuture", Noted)
    each(fail, "TestFails", thread="concurrent", non_blocking=True)
    with hami.pipe("TestFails") as pipe:
        with pytest.raises(KeyboardInterrupt):
            pipe.submit({"data": 0})
        assert isinstance(made[0].exception(TIMEOUT), Interrupted)
        assert pipe.submit({"data": 1}).result(TIMEOUT)["result"] == 1


def test_a_result_that_comes_after_cancellation_or_timeout_is_discarded() -> None:
    cls = gated()
    with hami.pipe("TestGated") as pipe:
        cancelled, late = {"data": 1}, {"data": 2}
        future = pipe.submit(cancelled)
        cls.gate.wait_for_arrival()
        assert future.cancel()
        with pytest.raises(concurrent.futures.CancelledError):
            future.result(TIMEOUT)
        with pytest.raises(hami.DeadlineExceeded):
            pipe(late, timeout=0.01)
        cls.gate.open()
    assert (cancelled, late) == ({"data": 1}, {"data": 2})

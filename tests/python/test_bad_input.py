"""A bad request or backend causes a typed error for that request, in every way of calling, and for no other request."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import hami
import pytest
from running import TIMEOUT, Gate, backend, each

GOOD = 1
WAYS = ("list", "call", "submit", "acall")


def ask_between_good_requests(pipe: hami.Pipe, bad: dict[str, Any], way: str) -> tuple[BaseException | None, list[Any]]:
    """Send a bad request between good ones; return its error and the results of the others."""
    requests = [{"data": GOOD}, bad, {"data": GOOD}]
    errors: list[BaseException | None] = [None, None, None]
    if way == "list":
        with pytest.raises(hami.BatchError) as raised:
            pipe(requests, timeout=TIMEOUT)
        for index, error in raised.value.errors:
            errors[index] = error
    elif way == "acall":

        async def main() -> list[Any]:
            return await asyncio.gather(*(pipe.acall(one, TIMEOUT) for one in requests), return_exceptions=True)

        errors = [one if isinstance(one, BaseException) else None for one in asyncio.run(main())]
    else:

        def call(index: int) -> None:
            try:
                pipe(requests[index], timeout=TIMEOUT) if way == "call" else futures[index].result(TIMEOUT)
            except BaseException as error:
                errors[index] = error

        futures = [submitted(pipe, one) for one in requests] if way == "submit" else []
        threads = [threading.Thread(target=call, args=(index,)) for index in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT)
    assert "result" not in bad
    assert errors[0] is errors[2] is None
    return errors[1], [requests[0]["result"], requests[2]["result"]]


@pytest.mark.parametrize("key", [1, "\ud800"])
def test_a_rejected_request_keeps_no_stale_result(key: Any) -> None:
    request = {"data": 1, "result": "stale", key: 2}
    with hami.pipe("Identity") as pipe, pytest.raises(hami.DataTypeError, match=r"^the keys of a request must be str"):
        pipe(request)
    assert "result" not in request


def submitted(pipe: hami.Pipe, request: dict[str, Any]) -> Future[Any]:
    """Submit a request; an error of `submit` itself becomes the exception of the future."""
    try:
        return pipe.submit(request, timeout=TIMEOUT)
    except hami.Error as error:
        refused: Future[Any] = Future()
        refused.set_exception(error)
        return refused


def first_line(error: BaseException | None) -> str:
    return str(error).splitlines()[0]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("keys", "expected", "message"),
    [
        ({"event": "soon"}, hami.DataTypeError, "the key \"event\" of a request must be a hami.Event, got 'soon'"),
        ({"request_size": 9}, hami.RequestError, 'request_size is 9; node "default" takes at most 4'),
        ({"request_size": 0}, hami.RequestError, "request_size is 0; it must be at least 1"),
        ({"request_size": "2"}, hami.RequestError, "request_size must be an int of at least 1, got str"),
        (
            {"request_size": 1 << 70},
            hami.RequestError,
            "request_size must be an int of at least 1, got int of more than 64 bits",
        ),
        ({"priority": 256}, hami.RequestError, "priority is 256; it must be 0 to 255"),
        ({"deadline": "now"}, hami.DataTypeError, "timeout or deadline of the request: expected float, got str"),
        ({1: 2}, hami.DataTypeError, "the keys of a request must be str, got 1"),
        ({"\ud800": 2}, hami.DataTypeError, "the keys of a request must be str of valid Unicode, got '\\ud800'"),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else "",
)
def test_a_bad_request_fails_alone(keys: dict[Any, Any], expected: type[Exception], message: str, way: str) -> None:
    each(lambda data: data + 1, "TestAddOne", max=4)
    with hami.pipe("TestAddOne") as pipe:
        error, others = ask_between_good_requests(pipe, {"data": GOOD, **keys}, way)
        assert (type(error), first_line(error)) == (expected, message)
        assert others == [GOOD + 1, GOOD + 1]


def misbehaving(bad: Callable[[Any], Any], **attributes: Any) -> None:
    """Register a backend that calls `bad` for an item whose data is "bad", and adds one to the data of the others."""

    def forward(batch: list[Any]) -> None:
        for item in batch:
            if item["data"] == "bad":
                bad(item)
            else:
                item["result"] = item["data"] + 1

    backend(forward, "TestMisbehaves", max=4, **attributes)


def raise_no_exception(_: Any) -> None:
    raise 5  # type: ignore[misc]  # noqa: B016


def exit_process(_: Any) -> None:
    raise SystemExit(3)


def write_wrong_key(item: Any) -> None:
    item[5] = 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("thread", ["dedicated", "serialized"])
@pytest.mark.parametrize(
    ("bad", "expected", "message"),
    [
        (lambda item: None, hami.NoResult, "the pipeline left no `result`"),
        (lambda item: item.pop("data"), hami.NoResult, "the pipeline left no `result`"),
        (raise_no_exception, TypeError, "exceptions must derive from BaseException"),
        (exit_process, hami.BackendExit, "the backend raised SystemExit(3)"),
        (write_wrong_key, hami.DataTypeError, "the keys of a request must be str, got 5"),
        (
            lambda item: item.update({"\ud800": 1}),
            hami.DataTypeError,
            "the keys of a request must be str of valid Unicode, got '\\ud800'",
        ),
        (lambda item: item.fail(5), hami.DataTypeError, "fail() takes an exception, got 5"),
    ],
    ids=[
        "sets no result",
        "removes the data",
        "raises a number",
        "exits",
        "writes a wrong key",
        "writes a key that is not text",
        "fails with a number",
    ],
)
def test_a_backend_that_mishandles_one_request_fails_only_that_request(
    bad: Any, expected: type[Exception], message: str, thread: str, way: str
) -> None:
    misbehaving(bad, thread=thread)
    with hami.pipe("TestMisbehaves") as pipe:
        error, others = ask_between_good_requests(pipe, {"data": "bad"}, way)
        assert (type(error), first_line(error)) == (expected, message)
        assert others == [GOOD + 1, GOOD + 1]


def test_the_error_of_a_backend_that_returns_its_results_explains_how_to_set_them() -> None:
    backend(lambda batch: [item["data"] for item in batch], "TestReturns", max=4)
    with hami.pipe("TestReturns") as pipe:
        with pytest.raises(hami.BatchError) as raised:
            pipe([{"data": 1}, {"data": 2}])
        for _, error in raised.value.errors:
            assert (type(error), first_line(error)) == (
                hami.NoResult,
                'TestReturns.forward returned list and set no `result`; it must set item["result"] of each request and '
                "return None",
            )


def test_the_return_value_of_forward_is_ignored_if_results_are_set() -> None:
    def forward(batch: list[Any]) -> list[Any]:
        for item in batch:
            item["result"] = item["data"]
        return batch

    backend(forward, "TestReturnsToo")
    backend(lambda batch: len(batch), "TestCounts")
    with hami.pipe("S[TestCounts,(or)TestReturnsToo]") as pipe:
        assert pipe({"data": 1})["result"] == 1


def test_a_request_that_the_backend_skips_fails_with_no_result() -> None:
    def forward(batch: list[Any]) -> None:
        for item in batch[:-1]:
            item["result"] = item["data"]

    backend(forward, "TestTooFew", max=4)
    with hami.pipe("TestTooFew") as pipe:
        requests = [{"data": number} for number in range(3)]
        with pytest.raises(hami.BatchError) as raised:
            pipe(requests)
        assert [(index, type(error)) for index, error in raised.value.errors] == [(2, hami.NoResult)]
        assert [request.get("result") for request in requests] == [0, 1, None]


@pytest.mark.parametrize("way", WAYS)
def test_a_backend_that_calls_a_closed_pipe_fails_only_that_request(way: str) -> None:
    with hami.pipe("Identity") as closed:
        pass
    misbehaving(lambda item: closed({"data": 1}))
    with hami.pipe("TestMisbehaves") as pipe:
        error, others = ask_between_good_requests(pipe, {"data": "bad"}, way)
        assert (type(error), first_line(error)) == (hami.PipeClosed, "the pipe is closed")
        assert others == [GOOD + 1, GOOD + 1]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("thread", ["dedicated", "serialized"])
def test_a_backend_that_calls_its_own_node_fails_only_that_request(thread: str, way: str) -> None:
    pipes: list[hami.Pipe] = []
    misbehaving(lambda item: pipes[0]({"data": 1}), thread=thread)
    with hami.pipe("TestMisbehaves") as pipe:
        pipes.append(pipe)
        error, others = ask_between_good_requests(pipe, {"data": "bad"}, way)
        assert type(error) is hami.ReentrantCall
        assert others == [GOOD + 1, GOOD + 1]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_call_a_closed_pipe_raises_pipe_closed(way: str) -> None:
    with hami.pipe("Identity") as pipe:
        pass
    request = {"data": 1, "result": "stale"}
    calls: dict[str, Callable[[], Any]] = {
        "call": lambda: pipe(request),
        "list": lambda: pipe([request]),
        "submit": lambda: pipe.submit(request).result(TIMEOUT),
        "acall": lambda: asyncio.run(pipe.acall(request)),
    }
    with pytest.raises(hami.PipeClosed):
        calls[way]()
    assert request == {"data": 1}


def test_requests_expire_while_a_backend_blocks_indefinitely() -> None:
    gate, entered = Gate(), threading.Event()
    misbehaving(lambda item: (entered.set(), gate.enter()))
    with hami.pipe({"backend": "TestMisbehaves", "timeout": "20ms"}) as pipe:
        while not entered.is_set():  # earlier requests expired before they started
            with pytest.raises(hami.DeadlineExceeded):
                pipe({"data": "bad"})
        waiting = {"data": GOOD}
        with pytest.raises(hami.DeadlineExceeded):
            pipe(waiting)
        assert "result" not in waiting
        gate.open()


def test_a_backend_that_blocks_occupies_only_its_own_instance() -> None:
    gate = Gate()
    misbehaving(lambda item: gate.enter())
    with hami.pipe({"backend": "TestMisbehaves", "instance_num": 2, "max": 1}) as pipe:
        stuck = pipe.submit({"data": "bad"})
        gate.wait_for_arrival()
        assert pipe({"data": GOOD}, timeout=TIMEOUT)["result"] == GOOD + 1
        gate.open()
        with pytest.raises(hami.NoResult):
            stuck.result(TIMEOUT)


@pytest.mark.parametrize("way", ["call", "submit", "acall"])
def test_a_request_below_min_fails_after_batching_timeout(way: str) -> None:
    each(lambda data: data + 1, "TestPairs", min=2, max=2)
    with hami.pipe({"backend": "TestPairs", "batching_timeout": 1}) as pipe:
        calls: dict[str, Callable[[], Any]] = {
            "call": lambda: pipe({"data": 1}),
            "submit": lambda: pipe.submit({"data": 1}).result(TIMEOUT),
            "acall": lambda: asyncio.run(pipe.acall({"data": 1})),
        }
        with pytest.raises(hami.RequestError) as raised:
            calls[way]()
        assert (
            first_line(raised.value) == 'node "default" takes at least 2 items; only 1 arrived within batching_timeout'
        )
        assert [one["result"] for one in pipe([{"data": 1}, {"data": 2}])] == [2, 3]


@pytest.mark.parametrize("thread", ["dedicated", "serialized", "concurrent"])
def test_many_threads_may_pass_the_same_dict(thread: str) -> None:
    each(lambda data: data + 1, "TestAddOne", thread=thread, max=4)
    failures: list[BaseException] = []
    shared: dict[str, Any] = {"data": GOOD}

    def call(pipe: hami.Pipe, turn: int) -> None:
        try:
            for number in range(100):
                if (number + turn) % 3 == 0:
                    pipe.submit(shared).result(TIMEOUT)
                elif (number + turn) % 3 == 1:
                    pipe([shared, {"data": number}])
                else:
                    pipe(shared)
                assert shared.get("result", GOOD + 1) == GOOD + 1
        except BaseException as error:
            failures.append(error)

    with hami.pipe({"backend": "TestAddOne", "instance_num": 2}) as pipe:
        threads = [threading.Thread(target=call, args=(pipe, turn)) for turn in range(6)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(TIMEOUT)
        assert failures == []
        assert pipe(shared) == {"data": GOOD, "result": GOOD + 1}

"""A hami.Event in a request makes the call asynchronous: reference/requests.md."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

import hami
import pytest


class Bad(Exception):
    pass


class Gate(hami.Backend):
    """Waits until the test opens it, then returns `data`, or raises `data` if that is an exception."""

    open = threading.Event()

    def forward(self, batch: list[Any]) -> None:
        type(self).open.wait()
        for item in batch:
            if isinstance(item["data"], Exception):
                raise item["data"]
            item["result"] = item["data"]
            item["seen"] = item.get("event")


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    Gate.open = threading.Event()
    hami.register("Gate")(Gate)
    yield Gate.open
    Gate.open.set()


def test_the_call_returns_at_once_and_the_result_is_set_before_the_event_completes(gate: threading.Event) -> None:
    with hami.pipe("Gate") as pipe:
        event = hami.Event()
        request = {"data": "page", "event": event, "result": "stale"}
        at_completion: list[Any] = []
        completed = threading.Event()

        def note(_: hami.Event) -> None:
            at_completion.append(request["result"])
            completed.set()

        event.add_done_callback(note)
        assert pipe(request) is request
        assert not event.done()
        assert "result" not in request
        gate.set()
        assert event.wait(timeout=60)
        completed.wait()
        assert at_completion == ["page"]
        assert event.value() == "page"
        assert event.exception() is None


def test_the_backend_gets_the_event_as_the_same_object(gate: threading.Event) -> None:
    gate.set()
    with hami.pipe("Gate") as pipe:
        event = hami.Event()
        request: dict[str, Any] = {"data": 1, "event": event}
        pipe(request)
        event.wait()
        assert request["seen"] is event
        assert request["event"] is event


def test_a_failure_becomes_the_exception_of_the_event(gate: threading.Event) -> None:
    gate.set()
    with hami.pipe("Gate") as pipe:
        event, error = hami.Event(), Bad("page 3")
        request = {"data": error, "event": event, "result": "stale"}
        pipe(request)
        assert event.wait(timeout=60)
        assert event.exception() is error
        assert "result" not in request


def test_a_coroutine_awaits_the_event(gate: threading.Event) -> None:
    gate.set()

    async def main(pipe: hami.Pipe) -> Any:
        event = hami.Event()
        pipe({"data": "page", "event": event})
        return await event

    with hami.pipe("Gate") as pipe:
        assert asyncio.run(main(pipe)) == "page"


@pytest.mark.parametrize(
    ("given", "shown"),
    [("yes", "'yes'"), (None, "None"), (True, "True"), (object, "<class 'object'>")],
)
def test_the_key_event_takes_only_events(given: object, shown: str) -> None:
    with hami.pipe("Identity") as pipe:
        request: dict[str, Any] = {"data": 1, "event": given, "result": "stale"}
        with pytest.raises(hami.DataTypeError) as caught:
            pipe(request)
        assert str(caught.value) == f'the key "event" of a request must be a hami.Event, got {shown}'
        assert "result" not in request
        good: dict[str, Any] = {"data": 2}
        with pytest.raises(hami.BatchError) as batch:
            pipe([request, good])
        assert [(index, type(error)) for index, error in batch.value.errors] == [(0, hami.DataTypeError)]
        assert good["result"] == 2


def test_each_request_needs_its_own_event() -> None:
    text = "the hami.Event of the request is done or belongs to another request; use a new one for each request"
    with hami.pipe("Identity") as pipe:
        event = hami.Event()
        pipe({"data": 1, "event": event})
        event.wait()
        with pytest.raises(hami.RequestError) as caught:
            pipe({"data": 2, "event": event})
        assert str(caught.value) == text
        shared = hami.Event()
        with pytest.raises(hami.BatchError) as batch:
            pipe([{"data": 1, "event": shared}, {"data": 2, "event": shared}])
        assert [(index, str(error)) for index, error in batch.value.errors] == [(1, text)]
        assert shared.wait(timeout=60)
        assert shared.value() == 1


def test_only_requests_of_a_list_that_have_an_event_are_asynchronous(gate: threading.Event) -> None:
    nodes = {"slow": {"backend": "Gate"}, "fast": {"backend": "Identity"}}
    with hami.pipe(nodes) as pipe:
        event = hami.Event()
        later: dict[str, Any] = {"node_name": "slow", "data": 1, "event": event}
        now: dict[str, Any] = {"node_name": "fast", "data": 2}
        requests = [later, now]
        assert pipe(requests) is requests
        assert now["result"] == 2
        assert "result" not in later
        assert not event.done()
        gate.set()
        assert event.wait(timeout=60)
        assert later["result"] == 1


def test_a_list_in_which_all_requests_have_events_returns_at_once(gate: threading.Event) -> None:
    with hami.pipe("Gate") as pipe:
        requests: list[dict[str, Any]] = [{"data": i, "event": hami.Event()} for i in range(3)]
        pipe(requests)
        assert not any(request["event"].done() for request in requests)
        gate.set()
        for request in requests:
            request["event"].wait()
        assert [request["result"] for request in requests] == [0, 1, 2]


def test_a_request_with_an_event_expires_in_time_while_its_backend_is_busy(gate: threading.Event) -> None:
    with hami.pipe("Gate") as pipe:
        event = hami.Event()
        request = {"data": 1, "event": event}
        pipe(request, timeout=0.001)
        assert event.wait(timeout=60)
        assert type(event.exception()) is hami.DeadlineExceeded
        gate.set()
    assert "result" not in request  # a late result is discarded


def test_the_event_of_a_request_for_a_closed_pipe_fails() -> None:
    pipe = hami.pipe("Identity")
    pipe.close()
    event = hami.Event()
    request = {"data": 1, "event": event}
    assert pipe(request) is request
    assert type(event.exception()) is hami.PipeClosed


def test_submit_completes_both_its_future_and_the_event(gate: threading.Event) -> None:
    with hami.pipe("Gate") as pipe:
        event = hami.Event()
        future = pipe.submit({"data": 1, "event": event})
        gate.set()
        assert future.result(timeout=60)["result"] == 1
        assert event.wait(timeout=60)
        assert event.value() == 1


def test_a_cancelled_future_cancels_its_event(gate: threading.Event) -> None:
    with hami.pipe("Gate") as pipe:
        event = hami.Event()
        assert pipe.submit({"data": 1, "event": event}).cancel()
        assert event.wait(timeout=60)
        assert type(event.exception()) is CancelledError
        gate.set()


def test_a_dict_that_rejects_the_result_fails_its_request() -> None:
    class Fixed(dict[str, Any]):
        def __setitem__(self, key: str, value: Any) -> None:
            raise Bad(key)

    with hami.pipe("Identity") as pipe:
        with pytest.raises(Bad, match="result"):
            pipe(Fixed(data=1))
        event, plain = hami.Event(), {"data": 2}
        pipe(Fixed(data=1, event=event))
        assert event.wait(timeout=60)
        assert str(event.exception()) == "result"
        with pytest.raises(hami.BatchError) as caught:
            pipe([Fixed(data=1), plain])
        assert [(index, type(error)) for index, error in caught.value.errors] == [(0, Bad)]
        assert plain["result"] == 2

"""The priority of a request: its key, and the argument of a call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import hami
import pytest
from running import TIMEOUT, backend, each


@pytest.fixture(autouse=True)
def _backends() -> None:
    def read(batch: list[Any]) -> None:
        for item in batch:
            item["result"] = item.get("priority", "none")

    backend(read, "TestReads", max=8)
    each(lambda data: data, "TestSame", max=8)


JOIN = {
    "a": {"backend": "TestSame", "next": "b,c"},
    "b": {"backend": "TestSame", "next": "d"},
    "c": {"backend": "TestSame", "next": "d"},
    "d": {"backend": "TestReads", "map": "b[result:data],c[result:other]"},
}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("TestReads", 7),
        ("S[TestSame,TestReads]", 7),
        ("FanOut[TestReads]", [7, 7]),
        ("CatSplit[TestSame,TestReads,TestSame]", 7),
        (JOIN, 7),
    ],
    ids=["backend", "sequence", "fan-out", "concatenated", "join"],
)
def test_a_backend_can_read_the_priority(config: Any, expected: Any) -> None:
    with hami.pipe(config) as pipe:
        request = pipe({"data": [1, 2], "priority": 7})
        assert request["result"] == expected
        assert request["priority"] == 7


def test_a_request_without_a_priority_stays_without_one() -> None:
    with hami.pipe(JOIN) as pipe:
        request = pipe({"data": 1})
        assert request["result"] == "none"
        assert "priority" not in request


def test_a_reposted_copy_has_the_priority() -> None:
    nodes = {"a": {"backend": "Repost[node.z,reply]"}, "z": {"backend": "TestReads"}}
    with hami.pipe(nodes) as pipe:
        request = pipe({"data": 1, "priority": 7, "node_name": "a"})
        assert request["reply"].wait(TIMEOUT)
        assert request["reply"].value() == 7


@pytest.mark.parametrize(
    ("priority", "error", "message"),
    [
        (256, hami.RequestError, "priority is 256; it must be 0 to 255"),
        (-1, hami.RequestError, "priority is -1; it must be 0 to 255"),
        ("7", hami.DataTypeError, "priority must be an int of 0 to 255, got str"),
        (7.0, hami.DataTypeError, "priority must be an int of 0 to 255, got float"),
        (True, hami.DataTypeError, "priority must be an int of 0 to 255, got bool"),
    ],
)
def test_an_invalid_priority_fails_only_its_request(priority: Any, error: type[Exception], message: str) -> None:
    with hami.pipe("TestReads") as pipe:
        requests = [{"data": 1, "priority": 1}, {"data": 2, "priority": priority}, {"data": 3}]
        with pytest.raises(hami.BatchError) as raised:
            pipe(requests)
        assert [(index, type(one), str(one)) for index, one in raised.value.errors] == [(1, error, message)]
        assert [request.get("result") for request in requests] == [1, None, "none"]


CALLS: dict[str, Callable[..., Any]] = {
    "call": lambda pipe, request, priority: pipe(request, priority=priority),
    "list": lambda pipe, request, priority: pipe([request], priority=priority)[0],
    "submit": lambda pipe, request, priority: pipe.submit(request, priority=priority).result(),
    "acall": lambda pipe, request, priority: asyncio.run(pipe.acall(request, priority=priority)),
    "map": lambda pipe, request, priority: next(pipe.map([request], priority=priority)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_argument_is_the_priority_of_a_request_that_has_none(call: Callable[..., Any]) -> None:
    with hami.pipe("TestReads") as pipe:
        for own in ({}, {"priority": None}):
            request = call(pipe, {"data": 1, **own}, 255)
            assert request["result"] == 255
            assert request.get("priority") is None  # the caller's dict does not change
        assert call(pipe, {"data": 1, "priority": 3}, 255)["result"] == 3
        assert call(pipe, {"data": 1}, None)["result"] == "none"


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    ("priority", "error"), [(256, hami.RequestError), (-1, hami.RequestError), ("high", TypeError)]
)
def test_an_invalid_argument_raises_the_error_of_the_key(call: Callable[..., Any], priority: Any, error: Any) -> None:
    with hami.pipe("TestReads") as pipe:
        with pytest.raises(error, match="priority"):
            call(pipe, {"data": 1}, priority)
        assert call(pipe, {"data": 1}, 254)["result"] == 254

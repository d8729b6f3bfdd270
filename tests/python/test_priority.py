"""The key `priority` of a request: every backend can read it, and an invalid value fails only that request."""

from __future__ import annotations

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

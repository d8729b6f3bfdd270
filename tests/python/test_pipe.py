"""Calls of a pipe: requests, results, errors, and the lifetime of their objects."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import pickle
import threading
import traceback
import weakref
from typing import Any

import hami
import pytest
from running import TIMEOUT, backend, each, gated


class PassedDirectly(hami.Backend):
    """A backend that is passed to hami.pipe directly instead of by name."""


@pytest.fixture(scope="module")
def identity() -> Any:
    with hami.pipe("Identity") as pipe:
        yield pipe


def test_a_call_returns_the_same_dict_with_result(identity: hami.Pipe) -> None:
    request = {"data": 1, "other": "kept"}
    assert identity(request) is request
    assert request == {"data": 1, "other": "kept", "result": 1}


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -(2**63), 2**100, 1.5, "text", "h\u00e9", "\ud800", b"a\0b", bytearray(b"x"), [1, [2]], (1, 2),
     {"a": 1}, {1}, object(), memoryview(b"x")],
    ids=lambda value: repr(value).partition(" at 0x")[0],
)  # fmt: skip
def test_values_keep_type_and_value(identity: hami.Pipe, value: Any) -> None:
    result = identity({"data": value})["result"]
    assert type(result) is type(value)
    assert result == value
    if isinstance(value, (str, bytes, list, tuple, dict, set, bytearray)):
        assert result is value


def test_a_subclass_of_int_keeps_its_class(identity: hami.Pipe) -> None:
    class Number(int):
        pass

    number = Number(3)
    assert identity({"data": number})["result"] is number


def test_a_failed_call_raises_the_backends_own_exception_and_leaves_no_result() -> None:
    def fail(item: Any) -> Any:
        raise LookupError("nothing there")

    each(fail, "TestFails")
    with hami.pipe("TestFails") as pipe:
        request = {"data": 1, "result": "stale"}
        with pytest.raises(LookupError, match="nothing there") as raised:
            pipe(request)
        assert request == {"data": 1}
        assert "in fail" in "".join(traceback.format_tb(raised.value.__traceback__))
        text = "".join(getattr(raised.value, "__notes__", [str(raised.value)]))
        assert text.endswith('in backend TestFails, node "default"')


def test_an_exception_that_is_raised_repeatedly_has_one_note() -> None:
    error = ValueError("always this one")

    def fail(_: Any) -> Any:
        raise error

    each(fail, "TestFailsAlike")
    with hami.pipe("TestFailsAlike") as pipe:
        for _ in range(3):
            with pytest.raises(ValueError, match="always this one"):
                pipe({"data": 1})
    assert len(getattr(error, "__notes__", [error.args[0]])) == 1


def test_a_backend_that_leaves_no_result_has_failed() -> None:
    backend(lambda batch: None, "TestSilent")
    with hami.pipe("TestSilent") as pipe:
        request = {"data": 1, "result": 2}
        with pytest.raises(hami.NoResult) as raised:
            pipe(request)
        assert str(raised.value).splitlines()[0] == "the pipeline left no `result`"
        assert request == {"data": 1}
    with hami.pipe("S[TestSilent,Identity]") as pipe, pytest.raises(hami.NoResult, match=r"^TestSilent left no"):
        pipe({"data": 1})


def test_keys_that_a_backend_writes_are_returned_and_data_is_unchanged() -> None:
    def forward(batch: list[Any]) -> None:
        for item in batch:
            item["result"], item["extra"], item["data"] = 1, 2, "changed"
            del item["other"]

    backend(forward, "TestWrites")
    with hami.pipe("TestWrites") as pipe:
        assert pipe({"data": 0, "other": 5}) == {"data": 0, "other": 5, "result": 1, "extra": 2}


def test_a_list_of_requests_succeeds_and_fails_one_by_one() -> None:
    def odd(number: int) -> int:
        if number % 2 == 0:
            raise ValueError(f"{number} is even")
        return number * 10

    each(odd, "TestOdd", max=8)
    with hami.pipe("TestOdd") as pipe:
        good = [{"data": 1}, {"data": 3}]
        assert pipe(good) is good
        assert [one["result"] for one in good] == [10, 30]
        assert pipe([]) == []
        requests = [{"data": number} for number in range(4)]
        with pytest.raises(hami.BatchError) as raised:
            pipe(requests)
        assert [(index, type(error)) for index, error in raised.value.errors] == [(0, ValueError), (2, ValueError)]
        assert requests == [{"data": 0}, {"data": 1, "result": 10}, {"data": 2}, {"data": 3, "result": 30}]


def test_an_invalid_request_of_a_list_does_not_affect_the_others(identity: hami.Pipe) -> None:
    requests: list[Any] = [{"data": 1}, {2: 3}, {"data": 4}]
    with pytest.raises(hami.BatchError) as raised:
        identity(requests)
    assert [(index, type(error)) for index, error in raised.value.errors] == [(1, hami.DataTypeError)]
    assert requests == [{"data": 1, "result": 1}, {2: 3}, {"data": 4, "result": 4}]


def test_only_dicts_and_lists_of_dicts_are_requests(identity: hami.Pipe) -> None:
    for wrong, message in [
        (5, 'a pipe takes a dict such as {"data": …}, or a list of dicts, got int'),
        ([{}, 5, "a"], 'a pipe takes a dict such as {"data": …}, or a list of dicts, got a list of int, str'),
        (({},), 'a pipe takes a dict such as {"data": …}, or a list of dicts, got tuple'),
    ]:
        with pytest.raises(hami.DataTypeError) as raised:
            identity(wrong)  # type: ignore[call-overload]
        assert str(raised.value) == message
    same: dict[str, Any] = {"data": 1}
    with pytest.raises(hami.DataTypeError) as raised:
        identity([same, same])
    assert str(raised.value) == "the same dict appears twice in the list; pass a separate dict for each request"
    with pytest.raises(hami.DataTypeError, match=r"^the keys of a request must be str, got 1$"):
        identity({1: 2})  # type: ignore[dict-item]


@pytest.mark.parametrize("timeout", ["5", float("nan"), [1]])
def test_a_timeout_is_a_number(timeout: Any) -> None:
    event, queue = hami.Event(), hami.Queue()
    with hami.pipe("Identity") as pipe:
        for wait in (
            lambda: pipe({"data": 1}, timeout),
            lambda: pipe([{"data": 1}], timeout),
            lambda: pipe.submit({"data": 1}, timeout),
            lambda: asyncio.run(pipe.acall({"data": 1}, timeout)),
            lambda: pipe.close(timeout),
            lambda: event.wait(timeout),
            lambda: queue.get(timeout),
            lambda: queue.put(1, timeout),
        ):
            with pytest.raises(hami.DataTypeError) as caught:
                wait()
            assert str(caught.value) == f"timeout must be a number of seconds or None, got {timeout!r}"
        assert pipe({"data": 1}, timeout=60)["result"] == 1


def test_many_threads_may_pass_the_same_large_dict(identity: hami.Pipe) -> None:
    shared: dict[str, Any] = {"data": "x" * 1000}
    failures: list[BaseException] = []

    def call() -> None:
        try:
            for number in range(300):
                shared["number"] = number
                identity(shared)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert identity(shared)["result"] is shared["data"]


class Thing:
    pass


@pytest.mark.parametrize("how", ["call", "list", "submit", "timeout", "fails"])
def test_a_pipe_keeps_no_reference_to_a_completed_request(how: str) -> None:
    def forward(item: Any) -> Any:
        if how == "fails":
            raise ValueError("no")
        return item

    each(forward, "TestKeepsNothing")
    with hami.pipe("TestKeepsNothing") as pipe:
        thing = Thing()
        gone = weakref.ref(thing)
        if how == "list":
            pipe([{"data": thing}])
        elif how == "call":
            pipe({"data": thing})
        elif how == "fails":
            with pytest.raises(ValueError, match="no"):
                pipe({"data": thing})
        else:
            pipe.submit({"data": thing}, timeout=3600 if how == "timeout" else None).result()
        del thing
        with contextlib.suppress(ValueError):
            pipe({"data": 1})  # by then, the thread that completed the first request has released it
        gc.collect()
        assert gone() is None


def test_an_entrypoint_that_waits_works_with_every_kind_of_call() -> None:
    each(lambda number: number + 1, "TestAddOne")
    with hami.pipe({"default": {"backend": "TestAddOne"}, "entrypoint": "S[Forward[node.default],Identity]"}) as pipe:
        assert pipe({"data": 1})["result"] == 2
        assert pipe({"data": 1}, timeout=60)["result"] == 2
        assert pipe.submit({"data": 1}).result()["result"] == 2


@pytest.mark.parametrize("make", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_pipe_is_neither_pickled_nor_copied(identity: hami.Pipe, make: Any) -> None:
    with pytest.raises(TypeError) as raised:
        make(identity)
    assert str(raised.value) == ("a pipe cannot be pickled or copied; call hami.pipe in the process that uses it")


def test_a_pipe_shows_its_nodes_and_whether_it_is_closed() -> None:
    with hami.pipe({"a": {"backend": "Identity", "next": "b"}, "b": {"backend": "Identity"}}) as pipe:
        assert repr(pipe) == '<hami.Pipe "a", "b">'
    assert repr(pipe) == '<hami.Pipe "a", "b", closed>'


@pytest.mark.parametrize("source", [PassedDirectly, PassedDirectly()], ids=["class", "instance"])
def test_hami_pipe_takes_the_name_of_a_class_but_not_the_class(source: Any) -> None:
    with pytest.raises(hami.ConfigError) as raised:
        hami.pipe(source)
    assert str(raised.value) == (
        "hami.pipe takes a path, a dict, an expression or the name of a packaged pipeline, "
        f'got {type(source).__name__}; register the class and pass its name: "PassedDirectly"'
    )


def test_stats_count_by_node() -> None:
    with hami.pipe("Identity") as pipe:
        pipe([{"data": 1}, {"data": 2}])
        with pytest.raises(hami.Error):
            pipe({})
        stats = pipe.stats()["default"]
        assert (stats.submitted, stats.completed, stats.failed) == (3, 2, 1)


def test_results_are_written_to_the_dict_once_when_the_request_is_complete() -> None:
    cls = gated()
    with hami.pipe("S[TestGated,TestGated]") as pipe:
        request = {"data": 1}
        future = pipe.submit(request)
        cls.gate.wait_for_arrival()
        assert request == {"data": 1}
        cls.gate.open()
        assert future.result(TIMEOUT) is request
        assert request == {"data": 1, "result": 201}

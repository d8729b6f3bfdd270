"""Traits of backend classes that decide where a batch runs: reference/backends.md, "Traits"."""

from __future__ import annotations

import threading
from typing import Any

import hami
import pytest
from rows import answers, failure, in_register, sizing
from running import TIMEOUT, Gate, each, gated


def test_a_free_instance_takes_requests_from_the_queue_while_another_is_busy() -> None:
    """No request is assigned to an instance before that instance is free."""
    gate = Gate()

    def forward(number: int) -> int:
        if number == 0:
            gate.enter()
        return number

    each(forward, "HeldByZero")
    with hami.pipe({"backend": "HeldByZero", "instance_num": 2}) as pipe:
        held = pipe.submit({"data": 0})
        gate.wait_for_arrival()
        others = [pipe.submit({"data": number}) for number in range(1, 20)]
        assert [future.result(TIMEOUT)["result"] for future in others] == list(range(1, 20))
        assert not held.done()
        gate.open()
        assert held.result(TIMEOUT)["result"] == 0


def where(name: str, **attributes: Any) -> None:
    """Register a backend that returns the thread it runs on."""
    each(lambda _: threading.get_ident(), name, **attributes)


def test_dedicated_is_the_default_and_a_container_is_dedicated_if_a_child_is() -> None:
    here = threading.get_ident()
    where("Dedicated")
    where("Anywhere", thread="serialized")
    with hami.pipe("Dedicated") as pipe:
        threads = {pipe({"data": 1})["result"] for _ in range(3)}
    assert len(threads) == 1
    assert here not in threads
    for text, is_here in [
        ("S[Anywhere,Anywhere]", True),
        ("S[Dedicated,Anywhere]", False),
        ("S[Anywhere,Dedicated]", False),
    ]:
        with hami.pipe(text) as pipe:
            assert (pipe({"data": 1})["result"] == here) is is_here, text


@pytest.mark.parametrize(("thread", "most"), [("serialized", 1), ("concurrent", 2)])
def test_instances_of_both_other_kinds_run_in_parallel(thread: str, most: int) -> None:
    cls = gated(thread=thread)
    with hami.pipe({"backend": "TestGated", "instance_num": most}) as pipe:
        futures = [pipe.submit({"data": number}) for number in range(3)]
        for _ in range(most):
            cls.gate.wait_for_arrival()
        assert len(cls.seen) == most
        cls.gate.open()
        assert [future.result(TIMEOUT)["result"] for future in futures] == [100, 101, 102]


def test_the_next_node_of_a_graph_runs_inline_if_it_is_non_blocking() -> None:
    here = threading.get_ident()
    where("NonBlocking", thread="serialized", non_blocking=True)
    nodes: dict[str, Any] = {"a": {"backend": "Identity", "next": "b"}, "b": {"backend": "NonBlocking"}}
    with hami.pipe(nodes) as pipe:
        assert pipe({"data": 1})["result"] == here


def test_a_request_that_no_instance_can_take_fails_at_once() -> None:
    sizes = sizing(max=4)
    with hami.pipe({"backend": "Sizes", "batching_timeout": "1h"}) as pipe:
        for call in (pipe, lambda request: pipe.submit(request).result(TIMEOUT), lambda request: pipe([request])):
            with pytest.raises(hami.Error, match=r"request_size is 5; node \"default\" takes at most 4"):
                call({"data": 1, "request_size": 5})
    assert sizes == []


def test_requests_of_a_list_that_stay_below_min_fail_and_the_others_succeed() -> None:
    sizes = sizing(max=2)
    config = {"backend": "Sizes", "min": 2, "batching_timeout": "20ms"}
    for count in (1, 3):
        requests = [{"data": number} for number in range(count)]
        with hami.pipe(config) as pipe, pytest.raises(hami.BatchError) as raised:
            pipe(requests)
        ((index, error),) = raised.value.errors
        assert index == count - 1
        assert type(error) is hami.RequestError
        assert (
            str(error).splitlines()[0]
            == 'node "default" takes at least 2 items; only 1 arrived within batching_timeout'
        )
        assert [request.get("result") for request in requests] == [*range(count - 1), None]
    assert sizes == [2]


def test_without_batching_a_call_below_min_fails_at_once() -> None:
    sizes = sizing(max=4)
    config = {"backend": "Sizes", "min": 2, "node_entrypoint": in_register("InstanceDispatcher")}
    assert "takes at least 2 items" in failure(config, hami.RequestError, 1)
    assert answers(config, 1, 2) == [1, 2]
    assert sizes == [2]


def test_an_instance_survives_a_backend_that_raises_system_exit() -> None:

    def leave(number: int) -> int:
        if number == 0:
            raise SystemExit(3)
        return number

    each(leave, "Leaves")
    with hami.pipe("Leaves") as pipe:
        for _ in range(3):
            with pytest.raises(hami.RequestError, match="SystemExit"):
                pipe({"data": 0})
        assert pipe({"data": 1})["result"] == 1


REGISTERS_ITSELF = "List[InstancesRegister[Reflect[backend]],Register[StateFul[Forward[node.a]]]]"


@pytest.mark.parametrize(
    "config",
    [
        {"backend": "Forward[default.0]"},
        {"backend": "Proxy[default.0]"},
        {"a": {"backend": "Forward[b.0]"}, "b": {"backend": "Forward[a.0]", "next": "a"}},
        {"a": {"backend": "Identity", "node_entrypoint": REGISTERS_ITSELF}},
    ],
)
def test_an_instance_that_calls_only_itself_is_rejected(config: dict[str, Any]) -> None:
    with pytest.raises(
        hami.ConfigError, match=r'instance "\w+\.\w+" calls itself, directly or through other instances'
    ):
        hami.pipe(config)


@pytest.mark.parametrize("backend", ["S[Identity,default.0]", "FanOut[default.0]"])
def test_an_instance_that_calls_itself_gets_an_error_instead_of_a_stack_overflow(backend: str) -> None:
    with hami.pipe(backend) as pipe, pytest.raises(hami.Error):
        pipe({"data": [1]}, timeout=TIMEOUT)


def test_the_traits_decide_whether_a_batch_runs_on_the_thread_of_the_caller() -> None:
    """`submit` runs inline only non-blocking classes, and a call with a timeout does not run inline."""
    here = threading.get_ident()
    for thread, non_blocking, called_here, submitted_here in [
        ("dedicated", False, False, False),
        ("serialized", False, True, False),
        ("concurrent", False, True, False),
        ("concurrent", True, True, True),
    ]:
        where("Where", thread=thread, non_blocking=non_blocking)
        with hami.pipe("Where") as pipe:
            assert (pipe({"data": 1})["result"] == here) is called_here
            assert (pipe.submit({"data": 1}).result(TIMEOUT)["result"] == here) is submitted_here
            assert pipe({"data": 1}, timeout=TIMEOUT)["result"] != here or non_blocking

"""Rules of threads (reference/backends.md, "Traits") and of waits (reference/requests.md, "Nested calls")."""

from __future__ import annotations

import threading
from typing import Any

import hami
import pytest
from rows import answers, failure, in_register, sizing
from running import PATIENCE, Gate, each, gated


def test_late_binding_a_free_instance_takes_all_that_waits() -> None:
    """An instance that becomes free pulls its next batch straight from the node's queue. No one-slot mailbox."""
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
        assert [future.result(PATIENCE)["result"] for future in others] == list(range(1, 20))
        assert not held.done()
        gate.open()
        assert held.result(PATIENCE)["result"] == 0


def where(name: str, **attributes: Any) -> None:
    """Register a backend that answers with the thread it runs on."""
    each(lambda _: threading.get_ident(), name, **attributes)


def test_threads_own_is_the_default_and_of_a_container_too() -> None:
    """`own`, the default for Python; a container needs its own thread if any child does."""
    here = threading.get_ident()
    where("Own")
    where("Anywhere", thread="serialized")
    with hami.pipe("Own") as pipe:
        threads = {pipe({"data": 1})["result"] for _ in range(3)}
    assert len(threads) == 1
    assert here not in threads
    for text, is_here in [("S[Anywhere,Anywhere]", True), ("S[Own,Anywhere]", False), ("S[Anywhere,Own]", False)]:
        with hami.pipe(text) as pipe:
            assert (pipe({"data": 1})["result"] == here) is is_here, text


@pytest.mark.parametrize(("thread", "most"), [("serialized", 1), ("concurrent", 2)])
def test_threads_any_runs_one_call_of_an_instance_at_a_time(thread: str, most: int) -> None:
    """`any` (one call at a time, any thread) or `concurrent`: two instances of either run in parallel."""
    cls = gated(thread=thread)
    with hami.pipe({"backend": "TestGated", "instance_num": most}) as pipe:
        futures = [pipe.submit({"data": number}) for number in range(3)]
        for _ in range(most):
            cls.gate.wait_for_arrival()
        assert len(cls.seen) == most
        cls.gate.open()
        assert [future.result(PATIENCE)["result"] for future in futures] == [100, 101, 102]


def test_inline_a_call_runs_on_the_callers_thread_and_submit_only_what_is_quick() -> None:
    """The caller's thread runs it; `submit` runs inline only classes marked `quick`; not with a timeout."""
    here = threading.get_ident()
    where("Anywhere", thread="serialized")
    where("Quick", thread="serialized", non_blocking=True)
    with hami.pipe("Anywhere") as pipe:
        assert pipe({"data": 1})["result"] == here
        assert pipe({"data": 1}, timeout=PATIENCE)["result"] != here
        assert pipe.submit({"data": 1}).result(PATIENCE)["result"] != here
    with hami.pipe("Quick") as pipe:
        assert pipe.submit({"data": 1}).result(PATIENCE)["result"] == here


def test_inline_a_hop_of_a_graph_is_like_submit() -> None:
    """The same for DAG hops."""
    here = threading.get_ident()
    where("Quick", thread="serialized", non_blocking=True)
    nodes: dict[str, Any] = {"a": {"backend": "Identity", "next": "b"}, "b": {"backend": "Quick"}}
    with hami.pipe(nodes) as pipe:
        assert pipe({"data": 1})["result"] == here


def test_a_request_that_no_instance_can_take_fails_at_once() -> None:
    """A batch that no instance can take (over `max` after splitting …) fails at once, on every path."""
    sizes = sizing(max=4)
    with hami.pipe({"backend": "Sizes", "batching_timeout": "1h"}) as pipe:
        for call in (pipe, lambda request: pipe.submit(request).result(PATIENCE), lambda request: pipe([request])):
            with pytest.raises(hami.Error, match=r"request_size is 5; node \"default\" takes at most 4"):
                call({"data": 1, "request_size": 5})
    assert sizes == []


def test_below_min_at_the_timeout_a_part_of_a_list_fails_and_the_rest_does_not() -> None:
    """A batch that no instance can take (… under `min` at the timeout) fails at once, on every path."""
    sizes = sizing(max=2)
    config = {"backend": "Sizes", "min": 2, "batching_timeout": "20ms"}
    for count in (1, 3):
        requests = [{"data": number} for number in range(count)]
        with hami.pipe(config) as pipe, pytest.raises(hami.BatchError) as raised:
            pipe(requests)
        ((index, error),) = raised.value.errors
        assert index == count - 1
        assert type(error) is hami.RequestError
        assert str(error).splitlines()[0] == 'node "default" takes at least 2 items; only 1 arrived within batching_timeout'
        assert [request.get("result") for request in requests] == [*range(count - 1), None]
    assert sizes == [2]


def test_below_min_without_batching_a_call_fails_at_once() -> None:
    """Fails at once, on every path; nothing waits without an end."""
    sizes = sizing(max=4)
    config = {"backend": "Sizes", "min": 2, "node_entrypoint": in_register("InstanceDispatcher")}
    assert "takes at least 2 items" in failure(config, hami.RequestError, 1)
    assert answers(config, 1, 2) == [1, 2]
    assert sizes == [2]


def test_every_thread_body_catches_everything() -> None:
    """Every thread body catches everything. An instance is released by scope."""

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


def test_a_backend_that_calls_its_own_busy_node_gets_an_error() -> None:
    """A backend that calls its own busy node gets an error, not a deadlock."""
    pipes: list[hami.Pipe] = []
    each(lambda number: pipes[0]({"data": number})["result"], "CallsItself")
    with hami.pipe("CallsItself") as pipe:
        pipes.append(pipe)
        with pytest.raises(hami.ReentrantCall):
            pipe({"data": 1})


@pytest.mark.parametrize(
    "config",
    [
        {"backend": "Forward[default.0]"},
        {"backend": "Proxy[default.0]"},
        {"a": {"backend": "Forward[b.0]"}, "b": {"backend": "Forward[a.0]", "next": "a"}},
        {"a": {"backend": "Identity", "node_entrypoint": REGISTERS_ITSELF}},
    ],
)
def test_an_instance_that_is_only_itself_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(hami.ConfigError, match=r'instance "\w+\.\w+" calls itself, directly or through other instances'):
        hami.pipe(config)


@pytest.mark.parametrize("backend", ["S[Identity,default.0]", "FanOut[default.0]"])
def test_an_instance_that_calls_itself_gets_an_error_and_not_the_end_of_the_stack(backend: str) -> None:
    with hami.pipe(backend) as pipe, pytest.raises(hami.Error):
        pipe({"data": [1]}, timeout=PATIENCE)

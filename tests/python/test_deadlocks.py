"""Backends that call each other's nodes: the call that completes a deadlock cycle raises, all others continue."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import hami
import pytest
from running import TIMEOUT, Gate, each, gated

THREADS = 64  # worker threads that a pipe has for requests of an entrypoint that waits
ADVICE = (
    "every instance of these nodes waits for the next one; give a node more instances (instance_num), give the calls a "
    "timeout, or call in another order"
)


def first_line(error: BaseException | None) -> str:
    return str(error).splitlines()[0]


@pytest.mark.parametrize("thread", ["dedicated", "serialized"])
@pytest.mark.parametrize("nodes", ["ab", "abc"])
def test_exactly_one_request_of_a_deadlock_cycle_gets_an_error(nodes: str, thread: str) -> None:
    pipes: list[hami.Pipe] = []
    all_hold = threading.Barrier(len(nodes))

    def call(data: Any) -> Any:
        if data == "nested":
            return "good"
        all_hold.wait(TIMEOUT)
        return pipes[0]({"data": "nested", "node_name": data})["result"]

    each(call, "TestCallsNext", thread=thread)
    config = {node: {"backend": "TestCallsNext"} for node in nodes}
    with hami.pipe(config) as pipe:
        pipes.append(pipe)
        following = dict(zip(nodes, nodes[1:] + nodes[0], strict=True))
        futures = [pipe.submit({"data": following[node], "node_name": node}) for node in nodes]
        errors = [error for error in (future.exception(TIMEOUT) for future in futures) if error is not None]
        assert [type(error) for error in errors] == [hami.ReentrantCall]
        start = first_line(errors[0]).split(": ")[1].split(" -> ")[0]
        path = (nodes * 2)[nodes.index(start) :][: len(nodes)] + start
        assert first_line(errors[0]) == f"nested calls would deadlock: {' -> '.join(path)}; {ADVICE}"
        good = [future.result(0)["result"] for future in futures if future.exception(0) is None]
        assert good == ["good"] * (len(nodes) - 1)


@pytest.mark.parametrize("source", ["expression", "same expression", "dict", "file"])
def test_a_deadlock_cycle_over_several_pipes_names_the_pipes(source: str, tmp_path: Path) -> None:
    pipes: list[hami.Pipe] = []
    each(lambda number: pipes[1 - number]({"data": 1 - number})["result"], "TestCallsOther")
    file = tmp_path / "second.toml"
    file.write_text('[default]\nbackend = "TestCallsOther"\n', "utf-8")
    second, name = {
        "expression": ("S[TestCallsOther]", '"S[TestCallsOther]"'),
        "same expression": ("TestCallsOther", '"TestCallsOther" (2)'),
        "dict": ({"default": {"backend": "TestCallsOther", "next": "b"}, "b": {"backend": "Identity"}}, '"default, b"'),
        "file": (file, f'"{file}"'),
    }[source]
    with hami.pipe("TestCallsOther") as first, hami.pipe(second) as other:
        pipes.extend([first, other])
        with pytest.raises(hami.ReentrantCall) as raised:
            first({"data": 0})
    names = ['"TestCallsOther"' + (" (1)" if source == "same expression" else ""), name]
    start, between = (f"default of pipe {name}" for name in names)
    assert first_line(raised.value) == f"nested calls would deadlock: {start} -> {between} -> {start}; {ADVICE}"


@pytest.mark.parametrize("how", ["result", "exception"])
def test_waiting_for_a_request_to_the_same_node_is_an_error(how: str) -> None:
    pipes: list[hami.Pipe] = []

    def wait(number: int) -> Any:
        if number > 1:
            return number
        future = pipes[0].submit({"data": 2})
        if how == "result":
            return future.result()["result"]
        error = future.exception()
        assert error is not None
        raise error

    each(wait, "TestWaits")
    with hami.pipe({"n": {"backend": "TestWaits"}}) as pipe:
        pipes.append(pipe)
        error = pipe.submit({"data": 1}).exception(TIMEOUT)
        assert type(error) is hami.ReentrantCall
        assert first_line(error) == f"nested calls would deadlock: n -> n; {ADVICE}"
        assert pipe({"data": 3})["result"] == 3


def test_a_request_to_the_same_node_runs_if_the_backend_does_not_wait_for_it() -> None:
    pipes: list[hami.Pipe] = []
    submitted: list[Any] = []

    def submit(number: int) -> int:
        if number < 3:
            submitted.append(pipes[0].submit({"data": number + 1}))
        return number

    each(submit, "TestSubmits")
    with hami.pipe("TestSubmits") as pipe:
        pipes.append(pipe)
        assert pipe({"data": 1})["result"] == 1
        assert submitted[0].result(TIMEOUT)["result"] == 2
        assert submitted[1].result(TIMEOUT)["result"] == 3


def test_a_backend_may_wait_for_a_request_to_another_node() -> None:
    pipes: list[hami.Pipe] = []
    each(lambda number: pipes[0].submit({"data": number, "node_name": "b"}).result()["result"] + 1, "TestWaits")
    with hami.pipe({"a": {"backend": "TestWaits"}, "b": {"backend": "Identity"}}) as pipe:
        pipes.append(pipe)
        assert pipe({"data": 1, "node_name": "a"})["result"] == 2


def test_backends_may_wait_for_their_requests_when_all_worker_threads_are_occupied() -> None:
    pipes: list[hami.Pipe] = []
    all_hold = threading.Barrier(THREADS)

    def call(data: Any) -> Any:
        if data == "nested":
            return "good"
        all_hold.wait(TIMEOUT)
        return pipes[0].submit({"data": "nested"}).result()["result"]

    each(call, "TestCallsNext", thread="concurrent")
    node = {"backend": "TestCallsNext", "instance_num": THREADS + 1}
    with hami.pipe({"n": node, "entrypoint": "S[Forward[node.n],Identity]"}) as pipe:
        pipes.append(pipe)
        futures = [pipe.submit({"data": "outer"}) for _ in range(THREADS)]
        assert [future.result(TIMEOUT)["result"] for future in futures] == ["good"] * THREADS


@pytest.mark.parametrize("how", ["call", "submit"])
def test_callbacks_may_wait_when_all_worker_threads_run_callbacks(how: str) -> None:
    gate = Gate()
    outcomes: list[Any] = []
    all_completed = threading.Semaphore(0)
    all_hold = threading.Barrier(THREADS)

    def respond(number: int) -> int:
        if number == 0:
            gate.enter()
        return number

    def call(_: Any) -> None:
        all_hold.wait(TIMEOUT)
        request = {"data": 1}
        outcomes.append((pipe(request) if how == "call" else pipe.submit(request).result())["result"])
        all_completed.release()

    each(respond, "TestResponds")
    with hami.pipe({"n": {"backend": "TestResponds"}, "entrypoint": "S[Forward[node.n],Identity]"}) as pipe:
        futures = [pipe.submit({"data": 0}) for _ in range(THREADS)]
        for future in futures:
            future.add_done_callback(call)
        gate.open()
        assert all(all_completed.acquire(timeout=TIMEOUT) for _ in futures)
    assert outcomes == [1] * THREADS


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("how", ["call", "submit"])
def test_a_callback_that_waits_for_its_own_instance_gets_an_error(how: str, instances: int) -> None:
    gate = Gate()
    outcomes: list[Any] = []
    done = threading.Event()

    def respond(number: int) -> int:
        if number == 1:
            gate.enter()
        return number

    def call(_: Any) -> None:
        try:
            request = {"data": 2}
            outcomes.append((pipe(request) if how == "call" else pipe.submit(request).result())["result"])
        except hami.Error as error:
            outcomes.append(type(error))
        done.set()

    each(respond, "TestResponds")
    with hami.pipe({"n": {"backend": "TestResponds", "instance_num": instances}}) as pipe:
        future = pipe.submit({"data": 1})
        gate.wait_for_arrival()
        future.add_done_callback(call)
        gate.open()
        assert done.wait(TIMEOUT)
        assert outcomes == [2 if instances == 2 else hami.ReentrantCall]
        assert pipe({"data": 3})["result"] == 3


@pytest.mark.parametrize("how", ["submit", "call"])
def test_a_callback_gets_an_error_from_a_full_queue_that_only_its_own_instance_serves(how: str) -> None:
    cls = gated()
    nested: list[BaseException | None] = []
    called = threading.Event()
    with hami.pipe({"backend": "TestGated", "max_queue_size": 1}) as pipe:

        def callback(_: Any) -> None:
            try:
                pipe.submit({"data": 3}).result() if how == "submit" else pipe({"data": 3})
            except hami.Error as error:
                nested.append(error)
            called.set()

        first = pipe.submit({"data": 1})
        first.add_done_callback(callback)
        cls.gate.wait_for_arrival()
        second = pipe.submit({"data": 2})
        cls.gate.open()
        assert [future.result(TIMEOUT)["result"] for future in (first, second)] == [101, 102]
        assert called.wait(TIMEOUT)
        assert [type(error) for error in nested] == [hami.ReentrantCall]
        assert pipe({"data": 4})["result"] == 104


def test_a_backend_gets_an_error_if_it_submits_more_than_its_own_queue_holds() -> None:
    pipes: list[hami.Pipe] = []
    nested: list[Any] = []

    def submit(data: Any) -> Any:
        if data == "outer":
            nested.extend(pipes[0].submit({"data": number}) for number in range(3))
        return data

    each(submit, "TestSubmits")
    with hami.pipe({"backend": "TestSubmits", "max_queue_size": 2}) as pipe:
        pipes.append(pipe)
        assert pipe({"data": "outer"}, timeout=TIMEOUT)["result"] == "outer"
        assert [future.result(TIMEOUT)["result"] for future in nested[:2]] == [0, 1]
        with pytest.raises(
            hami.ReentrantCall, match='waiting for capacity in the queue of node "default" would deadlock'
        ):
            nested[2].result(TIMEOUT)


def test_a_deadlock_cycle_through_children_is_detected() -> None:
    all_hold = threading.Barrier(2)

    class Meets(hami.Backend):
        """Passes its request on to its child after a second request has arrived; a passed-on request gets a result."""

        thread = "concurrent"
        child_count = (1, 1)

        def forward(self, batch: list[Any]) -> None:
            if "seen" in batch[0]:
                batch[0]["result"] = "good"
                return
            batch[0]["seen"] = True
            all_hold.wait(TIMEOUT)
            self.children[0].forward(batch)

    hami.register("TestMeets")(Meets)
    config = {"a": {"backend": "TestMeets[Forward[node.b]]"}, "b": {"backend": "TestMeets[Forward[node.a]]"}}
    with hami.pipe(config) as pipe:
        futures = [pipe.submit({"data": 1, "node_name": node}) for node in "ab"]
        errors = [future.exception(TIMEOUT) for future in futures]
        assert sorted(str(type(error).__name__) for error in errors) == ["NoneType", "ReentrantCall"]

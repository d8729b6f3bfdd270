"""Backends that call each other's nodes: whoever closes a circle of waits gets an error, all others go on."""

from __future__ import annotations

import threading
from typing import Any

import hami
import pytest
from running import PATIENCE, Gate, each

THREADS = 64  # those a pipe has for requests of an entrypoint that waits itself
ADVICE = (
    "every instance of these nodes waits for the next one; give a node more instances (instance_num), give the calls a "
    "timeout, or call in another order"
)


def first_line(error: BaseException | None) -> str:
    return str(error).splitlines()[0]


@pytest.mark.parametrize("thread", ["dedicated", "serialized"])
@pytest.mark.parametrize("nodes", ["ab", "abc"])
def test_one_of_several_requests_that_hold_each_others_nodes_gets_an_error(nodes: str, thread: str) -> None:
    pipes: list[hami.Pipe] = []
    all_hold = threading.Barrier(len(nodes))

    def ask(data: Any) -> Any:
        if data == "asked":
            return "good"
        all_hold.wait(PATIENCE)
        return pipes[0]({"data": "asked", "node_name": data})["result"]

    each(ask, "TestAsksNext", thread=thread)
    config = {node: {"backend": "TestAsksNext"} for node in nodes}
    with hami.pipe(config) as pipe:
        pipes.append(pipe)
        following = dict(zip(nodes, nodes[1:] + nodes[0], strict=True))
        futures = [pipe.submit({"data": following[node], "node_name": node}) for node in nodes]
        errors = [error for error in (future.exception(PATIENCE) for future in futures) if error is not None]
        assert [type(error) for error in errors] == [hami.ReentrantCall]
        start = first_line(errors[0]).partition(": ")[2].partition(" -> ")[0]
        path = (nodes * 2)[nodes.index(start) :][: len(nodes)] + start
        assert first_line(errors[0]) == f'nested calls would deadlock: {" -> ".join(path)}; {ADVICE}'
        good = [future.result(0)["result"] for future in futures if future.exception(0) is None]
        assert good == ["good"] * (len(nodes) - 1)


@pytest.mark.parametrize("how", ["result", "exception"])
def test_waiting_inside_for_what_was_submitted_to_the_own_node_is_an_error(how: str) -> None:
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
        error = pipe.submit({"data": 1}).exception(PATIENCE)
        assert type(error) is hami.ReentrantCall
        assert first_line(error) == f'nested calls would deadlock: n -> n; {ADVICE}'
        assert pipe({"data": 3})["result"] == 3


def test_what_is_submitted_to_the_own_node_runs_when_nobody_waits_for_it() -> None:
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
        assert submitted[0].result(PATIENCE)["result"] == 2
        assert submitted[1].result(PATIENCE)["result"] == 3


def test_a_backend_may_wait_for_what_it_submitted_to_another_node() -> None:
    pipes: list[hami.Pipe] = []
    each(lambda number: pipes[0].submit({"data": number, "node_name": "b"}).result()["result"] + 1, "TestWaits")
    with hami.pipe({"a": {"backend": "TestWaits"}, "b": {"backend": "Identity"}}) as pipe:
        pipes.append(pipe)
        assert pipe({"data": 1, "node_name": "a"})["result"] == 2


def test_backends_may_wait_for_what_they_submit_where_no_thread_is_left_to_run_it() -> None:
    pipes: list[hami.Pipe] = []
    all_hold = threading.Barrier(THREADS)

    def ask(data: Any) -> Any:
        if data == "asked":
            return "good"
        all_hold.wait(PATIENCE)
        return pipes[0].submit({"data": "asked"}).result()["result"]

    each(ask, "TestAsksNext", thread="concurrent")
    node = {"backend": "TestAsksNext", "instance_num": THREADS + 1}
    with hami.pipe({"n": node, "entrypoint": "S[Forward[node.n],Identity]"}) as pipe:
        pipes.append(pipe)
        futures = [pipe.submit({"data": "asks"}) for _ in range(THREADS)]
        assert [future.result(PATIENCE)["result"] for future in futures] == ["good"] * THREADS


@pytest.mark.parametrize("how", ["call", "submit"])
def test_callbacks_may_wait_where_no_thread_is_left_but_theirs(how: str) -> None:
    gate = Gate()
    told: list[Any] = []
    all_told = threading.Semaphore(0)
    all_hold = threading.Barrier(THREADS)

    def answer(number: int) -> int:
        if number == 0:
            gate.enter()
        return number

    def ask(_: Any) -> None:
        all_hold.wait(PATIENCE)
        request = {"data": 1}
        told.append((pipe(request) if how == "call" else pipe.submit(request).result())["result"])
        all_told.release()

    each(answer, "TestAnswers")
    with hami.pipe({"n": {"backend": "TestAnswers"}, "entrypoint": "S[Forward[node.n],Identity]"}) as pipe:
        futures = [pipe.submit({"data": 0}) for _ in range(THREADS)]
        for future in futures:
            future.add_done_callback(ask)
        gate.open()
        assert all(all_told.acquire(timeout=PATIENCE) for _ in futures)
    assert told == [1] * THREADS


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("how", ["call", "submit"])
def test_a_callback_that_waits_for_the_instance_it_runs_on_gets_an_error(how: str, instances: int) -> None:
    gate = Gate()
    told: list[Any] = []
    done = threading.Event()

    def answer(number: int) -> int:
        if number == 1:
            gate.enter()
        return number

    def ask(_: Any) -> None:
        try:
            request = {"data": 2}
            told.append((pipe(request) if how == "call" else pipe.submit(request).result())["result"])
        except hami.Error as error:
            told.append(type(error))
        done.set()

    each(answer, "TestAnswers")
    with hami.pipe({"n": {"backend": "TestAnswers", "instance_num": instances}}) as pipe:
        future = pipe.submit({"data": 1})
        gate.wait_for_arrival()
        future.add_done_callback(ask)
        gate.open()
        assert done.wait(PATIENCE)
        assert told == [2 if instances == 2 else hami.ReentrantCall]
        assert pipe({"data": 3})["result"] == 3


def test_backends_that_pass_requests_on_to_each_others_nodes_are_seen() -> None:
    all_hold = threading.Barrier(2)

    class Meets(hami.Backend):
        """Passes its request on to its child, once a second request is here; what was passed on already is answered."""

        thread = "concurrent"
        child_count = (1, 1)

        def forward(self, batch: list[Any]) -> None:
            if "seen" in batch[0]:
                batch[0]["result"] = "good"
                return
            batch[0]["seen"] = True
            all_hold.wait(PATIENCE)
            self.children[0].forward(batch)

    hami.register("TestMeets")(Meets)
    config = {"a": {"backend": "TestMeets[Forward[node.b]]"}, "b": {"backend": "TestMeets[Forward[node.a]]"}}
    with hami.pipe(config) as pipe:
        futures = [pipe.submit({"data": 1, "node_name": node}) for node in "ab"]
        errors = [future.exception(PATIENCE) for future in futures]
        assert sorted(str(type(error).__name__) for error in errors) == ["NoneType", "ReentrantCall"]

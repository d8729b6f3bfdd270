"""The queues that nodes have by themselves, and what a node's `filter`, `init_event` and `Interpreter` do."""

from __future__ import annotations

import queue
from typing import Any

import hami
import pytest
from running import PATIENCE, each, gated


def test_what_is_sent_to_a_node_becomes_a_request_of_it() -> None:
    seen: queue.Queue[Any] = queue.Queue()
    each(seen.put, "TestSees")
    with hami.pipe({"a": {"backend": "Send(b.queue)"}, "b": {"backend": "TestSees"}}) as pipe:
        assert pipe({"data": 5, "node_name": "a"})["result"] == 5
        assert seen.get(timeout=PATIENCE) == 5
        assert pipe.stats()["b"]["requests"] <= 1  # it may still be under way


def test_a_full_node_refuses_what_is_sent() -> None:
    cls = gated()
    nodes = {
        "a": {"backend": "Send(b.queue)"},
        "b": {"backend": "TestGated", "queue_max": 1, "on_full": "reject"},
    }
    with hami.pipe(nodes) as pipe:
        pipe({"data": 1, "node_name": "a"})
        cls.gate.wait_for_arrival()
        pipe({"data": 2, "node_name": "a"})
        with pytest.raises(hami.QueueFull):
            pipe({"data": 3, "node_name": "a"})
        cls.gate.open()


def test_an_observer_sees_what_waits_for_a_node() -> None:
    cls = gated()
    nodes = {"a": {"backend": "Observer(b.queue)"}, "b": {"backend": "TestGated"}}
    with hami.pipe(nodes) as pipe:
        assert pipe({"data": 0, "node_name": "a"})["result"] is None
        running = pipe.submit({"data": 1, "node_name": "b"})
        cls.gate.wait_for_arrival()
        waiting = pipe.submit({"data": 2, "node_name": "b"})
        assert pipe({"data": 0, "node_name": "a"})["result"] == 2
        cls.gate.open()
        assert [future.result(PATIENCE)["result"] for future in (running, waiting)] == [101, 102]


def test_a_receiver_serves_a_nodes_queue_as_one_more_instance() -> None:
    cls = gated()
    each(lambda number: -number, "TestNegate")
    entrypoint = (
        "List[InstancesRegister[Reflect[backend]], Recv(default.queue)[TestNegate], "
        "Register[DI[Batching, InstanceDispatcher]]]"
    )
    with hami.pipe({"backend": "TestGated", "node_entrypoint": entrypoint}) as pipe:
        both = [pipe.submit({"data": number}) for number in (1, 2)]
        cls.gate.wait_for_arrival()
        cls.gate.open()
        assert sorted(future.result(PATIENCE)["result"] for future in both) in ([-2, 101], [-1, 102])


def test_what_is_sent_to_an_instance_is_run_by_it() -> None:
    seen: queue.Queue[tuple[int, Any]] = queue.Queue()

    class Sees(hami.Backend):
        made = 0

        def init(self, options: Any) -> None:
            self.number = Sees.made
            Sees.made += 1

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                seen.put((self.number, item["data"]))
                item["result"] = None

    hami.register("TestSees")(Sees)
    nodes = {"a": {"backend": "Send(b.queue.1)"}, "b": {"backend": "TestSees", "instance_num": 2}}
    with hami.pipe(nodes) as pipe:
        pipe({"data": 5, "node_name": "a"})
        assert seen.get(timeout=PATIENCE) == (1, 5)


def test_a_node_runs_its_backend_only_where_its_filter_says_so() -> None:
    each(lambda number: number > 2, "TestAboveTwo")
    each(lambda number: number * 10, "TestTimesTen")
    with hami.pipe({"backend": "TestTimesTen", "filter": "TestAboveTwo", "max": 4}) as pipe:
        assert [request["result"] for request in pipe([{"data": n} for n in range(1, 5)])] == [1, 2, 30, 40]


def test_a_backend_hears_when_its_node_is_ready() -> None:
    events: list[hami.Event] = []

    class Listens(hami.Backend):
        def init(self, options: Any) -> None:
            events.append(options["init_event"])
            assert not events[0].done()

        def forward(self, batch: list[Any]) -> None: ...

    hami.register("TestListens")(Listens)
    with hami.pipe({"backend": "TestListens", "instance_num": 2}):
        assert len(events) == 2
        assert all(event.wait(PATIENCE) and event.exception() is None for event in events)


def test_a_backend_hears_when_its_node_failed_to_start() -> None:
    events: list[hami.Event] = []

    class Listens(hami.Backend):
        def init(self, options: Any) -> None:
            events.append(options["init_event"])
            if len(events) == 2:
                raise ValueError("no second one")

        def forward(self, batch: list[Any]) -> None: ...

    hami.register("TestListens")(Listens)
    with pytest.raises(ValueError, match="no second one"):
        hami.pipe({"backend": "TestListens", "instance_num": 2})
    assert isinstance(events[0].exception(), ValueError)


def test_the_interpreter_is_the_pipe_itself() -> None:
    with pytest.raises(hami.ConfigError, match="Interpreter is the pipe itself and stands in no expression"):
        hami.pipe("S[Identity,Interpreter]")

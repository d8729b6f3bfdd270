"""A node's full queue, its `filter`, its `init_event`, and `Interpreter`; test_language_rows_queues.py has the rest."""

from __future__ import annotations

from typing import Any

import hami
import pytest
from running import PATIENCE, each, gated


def test_a_full_node_refuses_what_is_sent() -> None:
    cls = gated()
    nodes = {
        "a": {"backend": "Send(b.queue)"},
        "b": {"backend": "TestGated", "max_queue_size": 1, "on_full": "reject"},
    }
    with hami.pipe(nodes) as pipe:
        pipe({"data": 1, "node_name": "a"})
        cls.gate.wait_for_arrival()
        pipe({"data": 2, "node_name": "a"})
        with pytest.raises(hami.QueueFull):
            pipe({"data": 3, "node_name": "a"})
        cls.gate.open()


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
    with pytest.raises(hami.ConfigError, match="Interpreter is the pipe itself and is not allowed in an expression"):
        hami.pipe("S[Identity,Interpreter]")

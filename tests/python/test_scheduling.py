"""A node's schedule as its keys and its init expression say: change the text and the behaviour changes."""

from __future__ import annotations

import threading
from concurrent import futures
from pathlib import Path
from typing import Any

import hami
import pytest
from running import PATIENCE, backend, each, gated

DEFAULT = "List[InstancesRegister[Reflect[backend]], Register[DI[Batching, InstanceDispatcher]]]"
NO_BATCHING = "List[InstancesRegister[Reflect[backend]], Register[InstanceDispatcher]]"


def batches_of(config: Any, cls: Any) -> list[list[int]]:
    with hami.pipe(config) as pipe:
        futures = [pipe.submit({"data": 0})]
        cls.gate.wait_for_arrival()
        futures += [pipe.submit({"data": number}) for number in (1, 2, 3)]
        cls.gate.open()
        assert [one.result(PATIENCE)["result"] for one in futures] == [100, 101, 102, 103]
    return cls.seen


def test_the_default_init_expression_is_what_runs() -> None:
    assert batches_of({"backend": "TestGated"}, gated(max=8)) == [[0], [1, 2, 3]]
    assert batches_of({"backend": "TestGated", "node_entrypoint": DEFAULT}, gated(max=8)) == [[0], [1, 2, 3]]


def test_without_batching_nothing_is_gathered() -> None:
    keys = {"backend": "TestGated", "node_entrypoint": NO_BATCHING}
    assert batches_of(keys, gated(max=8)) == [[0], [1], [2], [3]]


def test_the_init_expression_of_a_file_changes_what_its_node_does(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(f'[read]\nbackend = "TestGated"\ninit = "{NO_BATCHING}"\n')
    assert batches_of(file, gated(max=8)) == [[0], [1], [2], [3]]
    file.write_text('[read]\nbackend = "TestGated"\nmax = 2\n')
    assert batches_of(str(file), gated()) == [[0], [1, 2], [3]]


@pytest.mark.parametrize(
    "expression",
    [
        "IoC[InstancesRegister[BackgroundThread[Reflect[backend]]], Register[Block[Batching, InstanceDispatcher]];"
        "Forward[node.{node_name}]]",
        "IoC[InstancesRegister[BackgroundThread[BackendProxy]], Register[DI[Batching, InstanceDispatcher]]; "
        "Forward[node.{node_name}]]",
        "List[InstancesRegister[BackgroundThread[BackendProxy]], Register[Aspect[Batching, InstanceDispatcher]]]",
        "List[InstancesRegister[Reflect[backend]], "
        "Register[IoC[InstanceDispatcher,Aspect[Batching, InstanceDispatcher];Aspect]]]",
    ],
)
def test_every_way_of_writing_the_init_expression_gathers(expression: str) -> None:
    assert batches_of({"backend": "TestGated", "node_entrypoint": expression}, gated(max=8)) == [[0], [1, 2, 3]]


@pytest.mark.parametrize("expression", ["Reflect[key_to_cls_name, default=backend]", "S[TestAddOne,TestAddOne]"])
def test_backend_expressions_of_the_language_run(expression: str) -> None:
    each(lambda number: number + 1, "TestAddOne")
    keys = {"backend": "Identity", "key_to_cls_name": "S[TestAddOne,TestAddOne]"}
    if expression.startswith("Reflect"):
        config = {**keys, "node_entrypoint": DEFAULT.replace("Reflect[backend]", expression)}
        with hami.pipe({key: value for key, value in config.items() if key != "backend"}) as pipe:
            assert pipe({"data": 1})["result"] == 3
    else:
        with hami.pipe({"backend": expression}) as pipe:
            assert pipe({"data": 1})["result"] == 3


def test_instances_run_at_the_same_time() -> None:
    cls = gated()
    with hami.pipe({"backend": "TestGated", "instance_num": 3}) as pipe:
        futures = [pipe.submit({"data": number}) for number in range(3)]
        for _ in range(3):
            cls.gate.wait_for_arrival()
        cls.gate.open()
        assert [one.result(PATIENCE)["result"] for one in futures] == [100, 101, 102]


def test_a_free_instance_leaves_too_few_requests_to_the_one_that_waits_for_company() -> None:
    cls = gated(min=2, max=2)
    with hami.pipe({"backend": "TestGated", "instance_num": 2, "batching_timeout": "1h"}) as pipe:
        first = [pipe.submit({"data": number}) for number in (1, 2)]
        cls.gate.wait_for_arrival()
        third = pipe.submit({"data": 3})  # the second instance waits for company
        cls.gate.open()
        assert [future.result(PATIENCE)["result"] for future in first] == [101, 102]
        with pytest.raises(futures.TimeoutError):  # the first instance is free and looks at the queue
            third.result(0.05)
        fourth = pipe.submit({"data": 4})
        assert [future.result(PATIENCE)["result"] for future in (third, fourth)] == [103, 104]


def test_a_full_queue_rejects_with_queue_full() -> None:
    cls = gated()
    with hami.pipe({"backend": "TestGated", "max_queue_size": 1, "on_full": "reject"}) as pipe:
        running = pipe.submit({"data": 1})
        cls.gate.wait_for_arrival()
        waiting = pipe.submit({"data": 2})
        with pytest.raises(hami.QueueFull) as raised:
            pipe({"data": 3})
        assert str(raised.value).splitlines()[0] == 'node "default" has 1 requests queued (max_queue_size = 1)'
        cls.gate.open()
        assert [one.result(PATIENCE)["result"] for one in (running, waiting)] == [101, 102]


def test_one_bad_request_of_a_batch_fails_alone() -> None:
    seen: list[list[int]] = []

    def forward(batch: list[Any]) -> None:
        seen.append([item["data"] for item in batch])
        for item in batch:
            item["result"] = 100 // item["data"]

    backend(forward, "TestDivides", max=8)
    with hami.pipe("TestDivides") as pipe:
        requests = [{"data": 1}, {"data": 0}, {"data": 5}]
        with pytest.raises(hami.BatchError) as raised:
            pipe(requests)
        assert [(index, type(error)) for index, error in raised.value.errors] == [(1, ZeroDivisionError)]
        assert [one.get("result") for one in requests] == [100, None, 20]
        assert seen == [[1, 0, 5], [1], [0], [5]]


@pytest.mark.parametrize("how", ["node", "class", "memory"])
def test_a_batch_fails_whole_where_a_second_try_is_not_wanted(how: str) -> None:
    calls: list[int] = []

    def forward(batch: list[Any]) -> None:
        calls.append(len(batch))
        raise MemoryError("full") if how == "memory" else ValueError("bad")

    backend(forward, "TestFails", max=8, idempotent=how != "class")
    keys = {"on_batch_error": "fail"} if how == "node" else {}
    with hami.pipe({"backend": "TestFails", **keys}) as pipe:
        with pytest.raises(hami.BatchError) as raised:
            pipe([{"data": 1}, {"data": 2}])
        assert [index for index, _ in raised.value.errors] == [0, 1]
    assert calls == [2]


def test_a_backend_that_calls_its_own_node_gets_an_error() -> None:
    pipes: list[hami.Pipe] = []

    def call_again(number: int) -> int:
        return pipes[0]({"data": number})["result"]

    each(call_again, "TestCallsItself")
    with hami.pipe("TestCallsItself") as pipe:
        pipes.append(pipe)
        with pytest.raises(hami.ReentrantCall):
            pipe({"data": 1})


def test_threads_of_a_class_decide_where_it_runs() -> None:
    here = threading.get_ident()
    for thread, non_blocking, called_here, submitted_here in [
        ("dedicated", False, False, False),
        ("serialized", False, True, False),
        ("concurrent", False, True, False),
        ("concurrent", True, True, True),
    ]:
        each(lambda _: threading.get_ident(), "TestWhere", thread=thread, non_blocking=non_blocking)
        with hami.pipe("TestWhere") as pipe:
            assert (pipe({"data": 1})["result"] == here) is called_here
            assert (pipe.submit({"data": 1}).result(PATIENCE)["result"] == here) is submitted_here
            assert pipe({"data": 1}, timeout=60)["result"] != here or non_blocking


def test_batching_says_who_runs_together() -> None:
    assert batches_of({"backend": "TestGated", "batching": "greedy"}, gated(max=8)) == [[0], [1, 2, 3]]
    assert batches_of({"backend": "TestGated", "batching": "off"}, gated(max=8)) == [[0], [1], [2], [3]]
    with hami.pipe({"backend": "Identity", "max": 8, "batching": "off"}) as pipe:
        pipe([{"data": number} for number in range(4)])
        assert pipe.stats()["default"].batches == 1  # a list of one caller stays together


def test_batching_takes_no_other_word() -> None:
    with pytest.raises(
        hami.ConfigError, match='"batching" of Batching takes "adaptive", "greedy" or "off", got "always"'
    ):
        hami.pipe({"backend": "Identity", "batching": "always"})


def test_stats_show_what_a_batch_costs_once_two_sizes_were_run() -> None:
    with hami.pipe({"backend": "Identity", "max": 8}) as pipe:
        pipe({"data": 0})
        assert pipe.stats()["default"].target_batch_size is None
        for _ in range(3):
            for size in (1, 8):
                pipe([{"data": number} for number in range(size)])
        stats = pipe.stats()["default"]
        assert 1 <= stats.target_batch_size <= 8
        assert stats.batch_overhead_ms >= 0
        assert stats.per_item_ms >= 0
        assert stats.batch_overhead_ms + stats.per_item_ms > 0


def test_stats_show_why_batches_held_no_more() -> None:
    def counts(cls: Any, **keys: Any) -> list[float]:
        with hami.pipe({"backend": "TestGated", **keys}) as pipe:
            pending = [pipe.submit({"data": 0})]
            cls.gate.wait_for_arrival()
            pending += [pipe.submit({"data": number}) for number in (1, 2, 3)]
            cls.gate.open()
            futures.wait(pending, PATIENCE)
        return [
            getattr(pipe.stats()["default"], f"closed_{why}")
            for why in ("full", "target_size", "timeout", "queue_empty")
        ]

    assert counts(gated(max=8)) == [0, 0, 0, 2]
    assert counts(gated(max=3)) == [1, 0, 0, 1]
    assert counts(gated(max=1)) == [4, 0, 0, 0]

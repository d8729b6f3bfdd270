"""Init expressions: Register, InstancesRegister, InstanceDispatcher, Batching, and the batches that they form."""

from __future__ import annotations

from concurrent import futures
from pathlib import Path
from typing import Any

import hami
import pytest
from conftest import Run
from rows import answer, answers, happened, in_register, noting, refused, sizing
from running import TIMEOUT, each, gated

DEFAULT = "List[InstancesRegister[Reflect[backend]], Register[DI[Batching, InstanceDispatcher]]]"


def batches_of(config: Any, cls: Any) -> list[list[int]]:
    with hami.pipe(config) as pipe:
        futures = [pipe.submit({"data": 0})]
        cls.gate.wait_for_arrival()
        futures += [pipe.submit({"data": number}) for number in (1, 2, 3)]
        cls.gate.open()
        assert [one.result(TIMEOUT)["result"] for one in futures] == [100, 101, 102, 103]
    return cls.seen


def test_the_documented_default_is_the_init_expression_that_runs() -> None:
    assert batches_of({"backend": "TestGated"}, gated(max=8)) == [[0], [1, 2, 3]]
    assert batches_of({"backend": "TestGated", "node_entrypoint": DEFAULT}, gated(max=8)) == [[0], [1, 2, 3]]


def test_a_file_may_change_the_init_expression(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    without_batching = in_register("InstanceDispatcher")
    file.write_text(f'[read]\nbackend = "TestGated"\ninit = "{without_batching}"\n')
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
def test_every_form_of_the_init_expression_forms_batches(expression: str) -> None:
    assert batches_of({"backend": "TestGated", "node_entrypoint": expression}, gated(max=8)) == [[0], [1, 2, 3]]


def test_an_instance_that_becomes_free_leaves_requests_below_min_to_the_forming_instance() -> None:
    cls = gated(min=2, max=2)
    with hami.pipe({"backend": "TestGated", "instance_num": 2, "batching_timeout": "1h"}) as pipe:
        first = [pipe.submit({"data": number}) for number in (1, 2)]
        cls.gate.wait_for_arrival()
        third = pipe.submit({"data": 3})  # the second instance is forming a batch
        cls.gate.open()
        assert [future.result(TIMEOUT)["result"] for future in first] == [101, 102]
        with pytest.raises(futures.TimeoutError):  # the first instance is free and checks the queue
            third.result(0.05)
        fourth = pipe.submit({"data": 4})
        assert [future.result(TIMEOUT)["result"] for future in (third, fourth)] == [103, 104]


def test_register_and_instances_register_give_names() -> None:
    """`Register` gives the name `node.<node_name>`, `InstancesRegister` the names `<node_name>.<i>`."""
    journal = noting("A")
    nodes = {"one": {"backend": "A", "instance_num": 3}, "two": {"backend": "Identity"}}
    entry = "S[Forward[node.one],Forward[one.2],Forward[node.two]]"
    assert answer({**nodes, "dag_entrypoint": entry}, []) == ["A", "A"]
    assert happened(journal, "init") == ["A", "A", "A"]
    assert "one.3" in refused({**nodes, "dag_entrypoint": "Forward[one.3]"}, hami.NotFound)


def test_registered_names_belong_to_their_pipe() -> None:
    config = {"same": {"backend": "Identity", "instance_num": 2}}
    with hami.pipe(config) as first, hami.pipe(config) as second:
        assert (first({"data": 1})["result"], second({"data": 2})["result"]) == (1, 2)
    assert answer(config, 3) == 3


def test_the_first_hook_runs_before_batching_and_the_second_on_the_batch() -> None:
    before, gathered, sizes = (sizing(name, max=8) for name in ("PreCat", "CatedHandle", "Sizes"))
    made = in_register("DI[Batching, InstanceDispatcher[PreCat, CatedHandle]]")
    assert answers({"backend": "Sizes", "node_entrypoint": made}, 1, 2, 3) == [1, 2, 3]
    assert (before, gathered, sizes) == ([1, 1, 1], [3], [3])


def test_the_result_of_a_hook_is_the_data_of_the_next_step() -> None:
    noting("P", "C", "A", max=8)
    made = in_register("DI[Batching, InstanceDispatcher[P,C]]")
    assert answer({"backend": "A", "node_entrypoint": made}, []) == ["P", "C", "A"]


def test_without_batching_a_batch_holds_the_requests_of_one_call() -> None:
    made = in_register("InstanceDispatcher")
    assert batches_of({"backend": "TestGated", "node_entrypoint": made}, gated(max=8)) == [[0], [1], [2], [3]]
    sizes = sizing(max=8)
    assert answers({"backend": "Sizes", "node_entrypoint": made}, 1, 2, 3) == [1, 2, 3]
    assert sizes == [3]


def test_batching_forms_batches_of_at_most_max() -> None:
    made = in_register("DI[Batching, InstanceDispatcher]")
    assert batches_of({"backend": "TestGated", "node_entrypoint": made}, gated(max=8)) == [[0], [1, 2, 3]]
    assert batches_of({"backend": "TestGated", "node_entrypoint": made, "max": 2}, gated(max=8)) == [
        [0],
        [1, 2],
        [3],
    ]
    assert "Batching takes an InstanceDispatcher, got Identity" in refused(
        {"backend": "Identity", "node_entrypoint": in_register("DI[Batching,Identity]")}
    )


def test_the_entrypoint_is_independent_of_the_init_expression() -> None:
    journal = noting("A", "B")
    own = "List[Reflect[extra], InstancesRegister[Reflect[backend]], Register[DI[Batching, InstanceDispatcher]]]"
    node = {"backend": "A", "extra": "B", "init": own, "entrypoint": "S[Forward[node.{node_name}],Identity]"}
    assert answer(node, []) == ["A"]
    assert happened(journal, "init") == ["B", "A"]


@pytest.mark.parametrize("text", ["Interpreter", "S[Identity,Interpreter]"])
def test_interpreter_is_not_valid_in_an_expression(text: str) -> None:
    assert "Interpreter is the pipe itself and is not allowed in an expression" in refused(text)
    assert "Interpreter is the pipe itself and is not allowed in an expression" in refused(
        {"backend": "Identity", "entrypoint": text}
    )


def test_dag_dispatcher_runs_a_graph_of_nodes() -> None:
    noting("A", "B")
    nodes: dict[str, Any] = {"a": {"backend": "A", "next": "b"}, "b": {"backend": "B"}}
    assert answer(nodes, []) == ["A", "B"]
    assert answer({**nodes, "dag_entrypoint": "DagDispatcher"}, []) == ["A", "B"]
    assert answer({**nodes, "dag_entrypoint": "S[DagDispatcher,DagDispatcher]"}, []) == ["A", "B", "A", "B"]


def test_the_defaults_are_shown_by_show_config_and_can_be_replaced(hami_command: Run) -> None:
    shown = hami_command("show-config", "Identity").stdout
    made = "List[InstancesRegister[Reflect[backend]], Register[DI[Batching, InstanceDispatcher]]]"
    assert f'node_entrypoint = "{made}"  default' in shown
    assert 'entrypoint = "Forward[node.{node_name}]"  default' in shown
    each(lambda number: number + 1, "AddOne")
    assert answer({"backend": "AddOne", "node_entrypoint": made, "entrypoint": "Forward[node.{node_name}]"}, 1) == 2
    assert answer({"backend": "AddOne", "entrypoint": "S[Forward[node.{node_name}],Identity]"}, 1) == 2


def test_the_learned_cost_of_a_batch_is_known_after_batches_of_two_sizes() -> None:
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
        assert stats.policy.target_batch_size == stats.target_batch_size
        assert stats.policy.return_waits is False
        assert stats.policy.instances_in_use is None
        assert stats.as_dict()["policy"] == stats.policy.as_dict()


def test_the_policy_says_what_a_node_has_decided() -> None:
    decided = {"target_batch_size": 8, "return_waits": True, "return_wait_gain": 0.12345, "capped": True}
    policy = hami.observe.NodePolicy(decided)
    assert repr(policy) == "NodePolicy(target_batch_size=8, return_waits=True, return_wait_gain=0.123, capped=True)"
    assert policy.trial is None
    assert policy == hami.observe.NodePolicy(policy.as_dict())
    with pytest.raises(AttributeError, match="NodePolicy is a snapshot; trial cannot be set"):
        policy.trial = "return_waits"


def test_a_node_that_learns_nothing_has_no_policy() -> None:
    with hami.pipe("Identity") as pipe:
        pipe({"data": 1})
        assert pipe.stats()["default"].policy.as_dict() == {}


def test_high_traffic_caps_a_node_with_max_wait() -> None:
    with hami.pipe({"backend": "Identity", "max": 8, "max_wait": "10ms"}) as pipe:
        pipe({"data": 1})
        assert pipe.stats()["default"].policy.capped is None
        pipe({"data": 1}, priority=255)
        assert pipe.stats()["default"].policy.capped is True


def test_statistics_count_why_each_batch_started() -> None:
    def counts(cls: Any, **keys: Any) -> list[float]:
        with hami.pipe({"backend": "TestGated", **keys}) as pipe:
            pending = [pipe.submit({"data": 0})]
            cls.gate.wait_for_arrival()
            pending += [pipe.submit({"data": number}) for number in (1, 2, 3)]
            cls.gate.open()
            futures.wait(pending, TIMEOUT)
        return [
            getattr(pipe.stats()["default"], f"closed_{why}")
            for why in ("full", "target_size", "timeout", "queue_empty")
        ]

    assert counts(gated(max=8)) == [0, 0, 0, 2]
    assert counts(gated(max=3)) == [1, 0, 0, 1]
    assert counts(gated(max=1)) == [4, 0, 0, 0]
    # Every request is a call of its own. Only the last batch leaves no request in the queue.
    assert counts(gated(max=8), batching="off") == [0, 2, 0, 2]


@pytest.mark.parametrize("batching", ["off", "greedy", "adaptive"])
def test_statistics_count_a_request_before_its_call_returns(batching: str) -> None:
    def work(number: int) -> int:
        if number % 10 == 0:
            raise ValueError("ends in 0")
        return number

    each(work, "TestWorks", max=4)
    with hami.pipe({"backend": "TestWorks", "batching": batching, "instance_num": 2}) as pipe:
        for number in range(1, 1001):
            request = pipe.submit({"data": number})
            assert isinstance(request.exception(TIMEOUT), ValueError) == (number % 10 == 0)
            node = pipe.stats()["default"]
            assert (node.submitted, node.completed, node.failed) == (number, number - number // 10, number // 10)
            assert (node.waiting, node.running, node.batches) == (0, 0, number)
            closed = node.closed_full + node.closed_target_size + node.closed_timeout + node.closed_queue_empty
            assert closed == node.batches - node.inline_batches

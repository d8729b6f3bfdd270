"""One bad request fails alone: wherever requests of several callers are together, not only in a node's own batch."""

from __future__ import annotations

from typing import Any

import hami
import pytest
from running import PATIENCE, backend, gated

INSTANCES = "List[InstancesRegister[Reflect[backend]], Register[{}]]"
ALONE = [[1, 0, 5], [1], [0], [5]]


def picky(**attributes: Any) -> list[list[int]]:
    """Register a backend that spoils its requests before it fails on a 0; return the batches that it saw."""
    seen: list[list[int]] = []

    def forward(batch: list[Any]) -> None:
        assert not any("spoilt" in item for item in batch)
        seen.append([item["data"] for item in batch])
        for item in batch:
            item["spoilt"] = True
        for item in batch:
            item["data"], item["result"] = "changed", 100 // item["data"]

    backend(forward, "Picky", max=8, **attributes)
    return seen


def ask(config: Any, data: list[Any]) -> list[Any]:
    """Ask once with a list; give each request's result or the type of its error."""
    with hami.pipe(config) as pipe:
        requests = [{"data": one, "req_id": number} for number, one in enumerate(data)]
        with pytest.raises(hami.BatchError) as raised:
            pipe(requests)
    errors = {index: type(error) for index, error in raised.value.errors}
    return [errors[index] if index in errors else request["result"] for index, request in enumerate(requests)]


def node(backend_text: str, **keys: Any) -> dict[str, Any]:
    return {"backend": backend_text, "max": 8, **keys}


@pytest.mark.parametrize(
    "config",
    [
        node("StateFul[Picky]"),
        node("S[StateFul[Picky],Identity]"),
        node("BackgroundThread[StateFul[Picky]]"),
        {"backend": "Picky", "node_entrypoint": INSTANCES.format("Picky")},
        {"backend": "Picky", "node_entrypoint": "Register[StateFul[Reflect[backend]]]"},
        node("Picky", entrypoint="Forward[default.0]"),
        node("Picky", entrypoint="S[Forward[default.0],Identity]"),
        node("Picky", entrypoint="StateFul[Forward[default.0]]"),
        {"backend": "Identity", "entrypoint": "Picky"},
        # In front of a dispatcher, which does it: once is enough.
        node("Picky", node_entrypoint=INSTANCES.format("StateFul[Batching, InstanceDispatcher]")),
    ],
)
@pytest.mark.parametrize("thread", ["dedicated", "serialized", "concurrent"])
def test_a_batch_that_is_posted_is_tried_again_one_by_one(config: Any, thread: str) -> None:
    seen = picky(thread=thread)
    assert ask(config, [1, 0, 5]) == [100, ZeroDivisionError, 20]
    assert seen == ALONE


@pytest.mark.parametrize(
    "config",
    [
        node("FanOut[Picky]"),
        node("S[FanOut[Picky],Identity]"),
        node("FanOut[StateFul[Picky]]"),
        node("Picky", entrypoint="FanOut[Forward[default.0]]"),
        node("Picky", node_entrypoint=INSTANCES.format("FanOut[DI[Batching, InstanceDispatcher]]")),
    ],
)
def test_an_element_of_a_list_fails_no_other_list(config: Any) -> None:
    seen = picky()
    assert ask(config, [[1], [0], [5]]) == [[100], ZeroDivisionError, [20]]
    assert seen == ALONE


def test_callers_who_meet_in_a_batch_of_a_stateful_node_do_not_fail_each_other() -> None:
    def forward(self: Any, batch: list[Any]) -> None:
        self.gate.enter()
        for item in batch:
            item["state"] = item["result"] = (item["state"] or 0) + 100 // item["data"]

    gate = gated(max=8, forward=forward).gate
    with hami.pipe(node("StateFul[TestGated]", batching="greedy")) as pipe:
        callers = [pipe.submit({"data": 1, "req_id": "first"})]
        gate.wait_for_arrival()
        callers += [pipe.submit({"data": data, "req_id": data}) for data in (1, 0, 5)]
        gate.open()
        errors = [one.exception(PATIENCE) for one in callers]
        assert [type(error) for error in errors] == [type(None), type(None), ZeroDivisionError, type(None)]
        assert [one.result()["result"] for one in callers if not one.exception()] == [100, 100, 20]
        assert pipe({"data": 5, "req_id": 5})["result"] == 40  # the batch that failed left no trace


def test_a_state_is_the_same_at_the_second_try() -> None:
    @hami.register
    class Counts(hami.Backend):
        max = 8

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["state"] = item["result"] = (item["state"] or 0) + 1
            if any(item["data"] == "bad" for item in batch):
                raise ValueError("bad")

    with hami.pipe(node("StateFul[Counts]")) as pipe:
        for count in (1, 2, 3):
            requests = [{"data": "good", "req_id": 1}, {"data": "bad", "req_id": 2}, {"data": "good", "req_id": 1}]
            with pytest.raises(hami.BatchError) as raised:
                pipe(requests)
            assert [index for index, _ in raised.value.errors] == [1]
            assert [requests[0]["result"], requests[2]["result"]] == [2 * count - 1, 2 * count]


@pytest.mark.parametrize("container", ["StateFul[{}]", "FanOut[{}]", "S[StateFul[{}],Identity]"])
def test_a_posted_batch_fails_whole_where_the_node_or_the_class_says_so(container: str) -> None:
    data: list[Any] = [[1], [5], [0]] if "FanOut" in container else [1, 5, 0]
    for keys, attributes in [({"on_batch_error": "fail"}, {}), ({}, {"idempotent": False})]:
        seen = picky(**attributes)
        assert ask(node(container.format("Picky"), **keys), data) == [ZeroDivisionError] * 3
        assert seen == [[1, 5, 0]]


@pytest.mark.parametrize(
    "config",
    [
        node("Once", entrypoint="S[Forward[default.0],Picky]"),
        node("Once", entrypoint="S[Forward[node.default],Identity,Picky]"),
        {"a": node("S[Forward[b],Picky]"), "b": node("Once"), "dag_entrypoint": "Forward[node.a]"},
        {
            "a": node("S[c.0,Picky]"),
            "b": node("Once"),
            "c": node("S[b.0,Identity]"),
            "dag_entrypoint": "Forward[node.a]",
        },
    ],
)
def test_what_an_instance_must_not_do_twice_it_does_not_for_who_calls_it(config: Any) -> None:
    picky()
    once: list[Any] = []

    def forward(batch: list[Any]) -> None:
        for item in batch:
            once.append(item["data"])
            item["result"] = item["data"]

    backend(forward, "Once", max=8, idempotent=False)
    assert ask(config, [1, 0, 5]) == [ZeroDivisionError] * 3
    assert once == [1, 0, 5]


def test_a_posted_batch_is_not_tried_again_after_an_error_that_is_final() -> None:
    sizes: list[int] = []

    def forward(batch: list[Any]) -> None:
        sizes.append(len(batch))
        raise MemoryError("full")

    backend(forward, "Full", max=8)
    assert ask(node("StateFul[Full]"), [1, 2]) == [MemoryError, MemoryError]
    assert sizes == [2]


@pytest.mark.parametrize(("outer", "inner"), [("fail", "isolate"), ("isolate", "fail")])
def test_what_a_node_says_of_failed_batches_ends_with_it(outer: str, inner: str) -> None:
    """The requests are in two nodes at a time; in each of them its own word counts."""
    isolated = ([100, ZeroDivisionError, 20], ALONE)
    failed = ([ZeroDivisionError] * 3, ALONE[:1])

    def run(outer_backend: str, inner_backend: str) -> tuple[list[Any], list[Any]]:
        seen = picky()
        config = {
            "out": node(outer_backend, on_batch_error=outer),
            "in": node(inner_backend, on_batch_error=inner),
            "dag_entrypoint": "Forward[node.out]",
        }
        return ask(config, [1, 0, 5]), seen

    assert run("StateFul[Forward[node.in]]", "StateFul[Picky]") == (isolated if inner == "isolate" else failed)
    assert run("S[Forward[node.in],StateFul[Picky]]", "Identity") == (isolated if outer == "isolate" else failed)


def test_fan_out_says_which_element_failed() -> None:
    def forward(batch: list[Any]) -> None:
        for item in batch:
            if item["data"] == "fail":
                item.fail(ValueError("failed"))
            elif item["data"] == "raise":
                raise KeyError("raised")
            else:
                item["result"] = item["data"]

    backend(forward, "Mixed", max=8)
    with hami.pipe(node("FanOut[Mixed]")) as pipe:
        for data, error, told in [
            ([1, "fail", "raise"], ValueError, "element 1 of 3"),
            ([1, "raise", "fail"], KeyError, "element 1 of 3"),
            ([1, 2, "raise"], KeyError, "element 2 of 3"),
        ]:
            with pytest.raises(error) as raised:
                pipe({"data": data})
            assert told in "\n".join([str(raised.value), *getattr(raised.value, "__notes__", [])])

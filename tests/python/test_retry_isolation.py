"""A bad request does not fail its batch: batches of nodes, and batches inside containers and entrypoints."""

from __future__ import annotations

from typing import Any

import hami
import pytest
from running import TIMEOUT, backend, gated

INSTANCES = "List[InstancesRegister[Reflect[backend]], Register[{}]]"
ALONE = [[1, 0, 5], [1], [0], [5]]


def mutating_divider(**attributes: Any) -> list[list[int]]:
    """Register a backend that changes its requests before it fails on a 0, and return the batches that it saw."""
    seen: list[list[int]] = []

    def forward(batch: list[Any]) -> None:
        assert not any("changed" in item for item in batch)
        seen.append([item["data"] for item in batch])
        for item in batch:
            item["changed"] = True
        for item in batch:
            item["data"], item["result"] = "changed", 100 // item["data"]

    backend(forward, "Picky", max=8, **attributes)
    return seen


def outcomes(config: Any, data: list[Any]) -> list[Any]:
    """Call the pipe once with a list and return the result of each request or the type of its error."""
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
        # In front of a dispatcher, which retries: one retry is enough.
        node("Picky", node_entrypoint=INSTANCES.format("StateFul[Batching, InstanceDispatcher]")),
    ],
)
@pytest.mark.parametrize("thread", ["dedicated", "serialized", "concurrent"])
def test_requests_of_a_failed_batch_are_retried_one_by_one(config: Any, thread: str) -> None:
    seen = mutating_divider(thread=thread)
    assert outcomes(config, [1, 0, 5]) == [100, ZeroDivisionError, 20]
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
def test_a_failing_element_of_a_list_does_not_fail_other_lists(config: Any) -> None:
    seen = mutating_divider()
    assert outcomes(config, [[1], [0], [5]]) == [[100], ZeroDivisionError, [20]]
    assert seen == ALONE


def test_co_batched_callers_of_a_stateful_node_do_not_fail_each_other() -> None:
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
        errors = [one.exception(TIMEOUT) for one in callers]
        assert [type(error) for error in errors] == [type(None), type(None), ZeroDivisionError, type(None)]
        assert [one.result()["result"] for one in callers if not one.exception()] == [100, 100, 20]
        assert pipe({"data": 5, "req_id": 5})["result"] == 40  # the failed batch did not change the state


def test_a_retry_starts_from_the_same_state() -> None:
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
def test_a_batch_fails_as_a_whole_where_the_node_or_the_class_disables_retries(container: str) -> None:
    data: list[Any] = [[1], [5], [0]] if "FanOut" in container else [1, 5, 0]
    for keys, attributes in [({"on_batch_error": "fail"}, {}), ({}, {"idempotent": False})]:
        seen = mutating_divider(**attributes)
        assert outcomes(node(container.format("Picky"), **keys), data) == [ZeroDivisionError] * 3
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
def test_a_caller_of_a_non_idempotent_instance_is_not_retried(config: Any) -> None:
    mutating_divider()
    once: list[Any] = []

    def forward(batch: list[Any]) -> None:
        for item in batch:
            once.append(item["data"])
            item["result"] = item["data"]

    backend(forward, "Once", max=8, idempotent=False)
    assert outcomes(config, [1, 0, 5]) == [ZeroDivisionError] * 3
    assert once == [1, 0, 5]


def test_a_batch_is_not_retried_after_a_memory_error() -> None:
    sizes: list[int] = []

    def forward(batch: list[Any]) -> None:
        sizes.append(len(batch))
        raise MemoryError("full")

    backend(forward, "Full", max=8)
    assert outcomes(node("StateFul[Full]"), [1, 2]) == [MemoryError, MemoryError]
    assert sizes == [2]


@pytest.mark.parametrize(("outer", "inner"), [("fail", "isolate"), ("isolate", "fail")])
def test_on_batch_error_of_a_node_applies_only_to_its_own_backend(outer: str, inner: str) -> None:
    """A request runs in two nodes at once; the key of each node applies to its own backend."""
    isolated = ([100, ZeroDivisionError, 20], ALONE)
    failed = ([ZeroDivisionError] * 3, ALONE[:1])

    def run(outer_backend: str, inner_backend: str) -> tuple[list[Any], list[Any]]:
        seen = mutating_divider()
        config = {
            "out": node(outer_backend, on_batch_error=outer),
            "in": node(inner_backend, on_batch_error=inner),
            "dag_entrypoint": "Forward[node.out]",
        }
        return outcomes(config, [1, 0, 5]), seen

    assert run("StateFul[Forward[node.in]]", "StateFul[Picky]") == (isolated if inner == "isolate" else failed)
    assert run("S[Forward[node.in],StateFul[Picky]]", "Identity") == (isolated if outer == "isolate" else failed)


def test_fan_out_names_the_element_that_failed() -> None:
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
        for data, error, note in [
            ([1, "fail", "raise"], ValueError, "element 1 of 3"),
            ([1, "raise", "fail"], KeyError, "element 1 of 3"),
            ([1, 2, "raise"], KeyError, "element 2 of 3"),
        ]:
            with pytest.raises(error) as raised:
                pipe({"data": data})
            assert note in "\n".join([str(raised.value), *getattr(raised.value, "__notes__", [])])

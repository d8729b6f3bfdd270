"""StateFul: reference/backends.md, "StateFul"."""

from __future__ import annotations

import threading
from typing import Any

import hami
import pytest

STATEFUL = "List[InstancesRegister[Reflect[backend]], Register[StateFul[Batching, InstanceDispatcher]]]"


@hami.register
class AddToState(hami.Backend):
    """Adds `data` to the state; fails on negative data."""

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            if item["data"] < 0:
                item.fail(ValueError("negative"))
                continue
            item["state"] = item["result"] = (item["state"] or 0) + item["data"]


@pytest.fixture
def sums() -> Any:
    with hami.pipe({"backend": "AddToState", "node_entrypoint": STATEFUL, "instance_num": 2, "max": 4}) as pipe:
        yield lambda data, **keys: pipe({"data": data, **keys})["result"]


def test_each_req_id_has_a_state_that_lasts_from_call_to_call(sums: Any) -> None:
    assert [sums(1, req_id="a"), sums(5, req_id="a"), sums(5, req_id="b"), sums(5, req_id=7)] == [1, 6, 5, 5]


def test_requests_with_one_req_id_run_one_after_another_even_in_one_call() -> None:
    with hami.pipe({"backend": "AddToState", "node_entrypoint": STATEFUL, "instance_num": 2, "max": 4}) as pipe:
        answers = pipe([{"data": 1, "req_id": "a"} for _ in range(20)])
    assert [answer["result"] for answer in answers] == list(range(1, 21))


def test_any_number_of_requests_with_one_req_id_run_one_after_another() -> None:
    config = {"backend": "Identity", "node_entrypoint": STATEFUL}
    with hami.pipe(config) as pipe:
        answers = pipe([{"data": number, "req_id": "a"} for number in range(50_000)])
    assert [answer["result"] for answer in answers] == list(range(50_000))


@pytest.mark.parametrize("expression", ["StateFul[AddToState]", "S[StateFul[AddToState],Identity]"])
def test_a_stateful_backend_must_have_one_instance(expression: str) -> None:
    """Several instances would run requests with one req_id concurrently and lose state."""
    with hami.pipe({"backend": expression, "instance_num": 1}) as pipe:
        answers = pipe([{"data": 1, "req_id": "a"} for _ in range(20)])
    assert [answer["result"] for answer in answers] == list(range(1, 21))
    with pytest.raises(hami.ConfigError) as caught:
        hami.pipe({"backend": expression, "instance_num": 2})
    message = str(caught.value)
    assert message.startswith('StateFul is part of the backend of node "default", which has several instances\n')
    assert message.endswith(f'node_entrypoint = "{STATEFUL}"; or set instance_num = 1')


def test_each_stateful_backend_of_a_node_has_its_own_state() -> None:
    with hami.pipe("S[StateFul[AddToState],StateFul[AddToState]]") as pipe:
        answers = pipe([{"data": 1, "req_id": "a"} for _ in range(4)])
    assert [answer["result"] for answer in answers] == [1, 3, 6, 10]  # sums of 1, 2, 3 and 4


def test_nodes_keep_separate_states_for_one_req_id() -> None:
    @hami.register
    class EndsSometimes(hami.Backend):
        thread = "concurrent"

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["result"] = item["state"] or 0
                item["state"] = item["data"] if item["data"] % 3 else None

    node = {"backend": "EndsSometimes", "node_entrypoint": STATEFUL, "map": "start[result:data]"}
    config = {"start": {"backend": "Identity", "next": "left,right"}, "left": dict(node), "right": dict(node)}
    with hami.pipe(config) as pipe:

        def call() -> None:
            for number in range(2000):
                pipe({"data": number, "req_id": 1})

        callers = [threading.Thread(target=call) for _ in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert pipe({"data": 0, "req_id": 1, "finish": True})["result"].keys() == {"left", "right"}
        assert pipe({"data": 1, "req_id": 1})["result"] == {"left": 0, "right": 0}


def test_finish_ends_the_state(sums: Any) -> None:
    assert [sums(1, req_id="a"), sums(1, req_id="a", finish=True), sums(1, req_id="a")] == [1, 2, 1]


def test_a_failed_request_does_not_change_the_state(sums: Any) -> None:
    sums(3, req_id="a")
    with pytest.raises(ValueError, match="negative"):
        sums(-1, req_id="a")
    assert sums(1, req_id="a") == 4


def test_the_caller_does_not_see_the_state() -> None:
    with hami.pipe({"backend": "AddToState", "node_entrypoint": STATEFUL}) as pipe:
        assert pipe({"data": 1, "req_id": "a"}) == {"data": 1, "req_id": "a", "result": 1}


@pytest.mark.parametrize(
    ("keys", "error", "message"),
    [
        ({}, hami.RequestError, "the request has no `req_id`, which selects its state"),
        ({"req_id": 1.5}, hami.DataTypeError, "req_id must be a str or an int, got float"),
    ],
)
def test_a_request_without_a_valid_req_id_fails(sums: Any, keys: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        sums(1, **keys)
    assert str(caught.value) == message


@pytest.mark.parametrize(("ttl", "second"), [("1h", 3), ("0", 2)])
def test_the_state_ends_after_its_ttl(ttl: str, second: int) -> None:
    config = {"backend": "AddToState", "node_entrypoint": STATEFUL.replace("StateFul", f"StateFul(ttl={ttl})")}
    with hami.pipe(config) as pipe:
        assert pipe({"data": 1, "req_id": "a"})["result"] == 1
        assert pipe({"data": 2, "req_id": "a"})["result"] == second

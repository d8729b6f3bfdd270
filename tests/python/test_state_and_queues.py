"""StateFul, Queue, Send, Recv, Observer: LANGUAGE §2."""

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


def test_the_state_lasts_from_call_to_call_for_each_req_id(sums: Any) -> None:
    assert [sums(1, req_id="a"), sums(5, req_id="a"), sums(5, req_id="b"), sums(5, req_id=7)] == [1, 6, 5, 5]


def test_requests_of_one_req_id_take_turns_even_in_one_call() -> None:
    with hami.pipe({"backend": "AddToState", "node_entrypoint": STATEFUL, "instance_num": 2, "max": 4}) as pipe:
        answers = pipe([{"data": 1, "req_id": "a"} for _ in range(20)])
    assert [answer["result"] for answer in answers] == list(range(1, 21))


def test_as_many_requests_of_one_req_id_as_come_take_turns() -> None:
    config = {"backend": "Identity", "node_entrypoint": STATEFUL}
    with hami.pipe(config) as pipe:
        answers = pipe([{"data": number, "req_id": "a"} for number in range(50_000)])
    assert [answer["result"] for answer in answers] == list(range(50_000))


@pytest.mark.parametrize("expression", ["StateFul[AddToState]", "S[StateFul[AddToState],Identity]"])
def test_a_stateful_backend_has_one_instance(expression: str) -> None:
    """Several would run requests of one req_id at the same time, and lose what the other left."""
    with hami.pipe({"backend": expression, "instance_num": 1}) as pipe:
        answers = pipe([{"data": 1, "req_id": "a"} for _ in range(20)])
    assert [answer["result"] for answer in answers] == list(range(1, 21))
    with pytest.raises(hami.ConfigError) as caught:
        hami.pipe({"backend": expression, "instance_num": 2})
    told = str(caught.value)
    assert told.startswith('StateFul is part of the backend of node "default", which has several instances\n')
    assert told.endswith(f'node_entrypoint = "{STATEFUL}"; or set instance_num = 1')


def test_stateful_backends_of_one_node_keep_states_of_their_own() -> None:
    with hami.pipe("S[StateFul[AddToState],StateFul[AddToState]]") as pipe:
        answers = pipe([{"data": 1, "req_id": "a"} for _ in range(4)])
    assert [answer["result"] for answer in answers] == [1, 3, 6, 10]  # sums of 1, 2, 3 and 4


def test_nodes_keep_states_of_one_req_id_side_by_side() -> None:
    @hami.register
    class NowAndThen(hami.Backend):
        thread = "concurrent"

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["result"] = item["state"] or 0
                item["state"] = item["data"] if item["data"] % 3 else None

    node = {"backend": "NowAndThen", "node_entrypoint": STATEFUL, "map": "start[result:data]"}
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


def test_a_failed_request_leaves_the_state_and_the_turns_as_they_were(sums: Any) -> None:
    sums(3, req_id="a")
    with pytest.raises(ValueError, match="negative"):
        sums(-1, req_id="a")
    assert sums(1, req_id="a") == 4


def test_the_state_is_not_shown_to_the_caller(sums: Any) -> None:
    with hami.pipe({"backend": "AddToState", "node_entrypoint": STATEFUL}) as pipe:
        assert pipe({"data": 1, "req_id": "a"}) == {"data": 1, "req_id": "a", "result": 1}


@pytest.mark.parametrize(
    ("keys", "error", "message"),
    [
        ({}, hami.RequestError, "the request has no `req_id`, which selects its state"),
        ({"req_id": 1.5}, hami.DataTypeError, "req_id must be a str or an int, got float"),
    ],
)
def test_a_request_without_a_good_req_id_fails(sums: Any, keys: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        sums(1, **keys)
    assert str(caught.value) == message


def test_what_is_sent_is_seen_and_then_received() -> None:
    received: list[Any] = []
    arrived = threading.Event()
    all_there = threading.Event()
    may_receive = threading.Event()

    @hami.register
    class Receive(hami.Backend):
        def forward(self, batch: list[Any]) -> None:
            arrived.set()
            may_receive.wait()
            for item in batch:
                received.append(item["data"])
                item["result"] = None
            if len(received) == 4:
                all_there.set()

    config = {
        "backend": "S[Send(q),Observer(q)]",
        "node_entrypoint": "List[InstancesRegister[Reflect[backend]],"
        "Register[DI[Batching, InstanceDispatcher]], Recv(q)[Receive]]",
    }
    with hami.pipe(config) as pipe:
        pipe({"data": 0})
        assert arrived.wait(60)  # the receiver has taken this one, and waits
        seen = [pipe({"data": number})["result"] for number in (1, 2, 3)]
        assert seen == [1, 1, 1]  # the first is looked at, and stays
        may_receive.set()
        assert all_there.wait(60)
    assert received == [0, 1, 2, 3]


def test_a_full_queue_holds_a_request_for_as_long_as_it_may_wait() -> None:
    with hami.pipe({"backend": "Queue(q,max=1)"}) as pipe:
        assert pipe({"data": 1})["result"] == 1
        with pytest.raises(hami.DeadlineExceeded):
            pipe({"data": 2}, timeout=0.05)


def test_an_observed_queue_that_is_empty_gives_none() -> None:
    with hami.pipe("Observer(q)") as pipe:
        assert pipe({"data": 1})["result"] is None


def test_the_room_of_a_queue_may_be_said_where_it_is_used_already() -> None:
    """S initialises its items from right to left."""
    with hami.pipe("S[Queue(q,max=1),Observer(q)]") as pipe:
        assert pipe({"data": 1})["result"] == 1
        with pytest.raises(hami.DeadlineExceeded):
            pipe({"data": 2}, timeout=0.05)


def test_a_queue_declared_twice_with_different_room_is_an_error() -> None:
    with pytest.raises(hami.ConfigError) as caught:
        hami.pipe("S[Queue(q,max=1),Queue(q,max=2)]")
    # Before Python 3.11 the notes are part of the text.
    told = str(caught.value).splitlines()[0]
    assert told == 'queue "q" is declared with capacity 2 and with 1; declare it once'

"""Queue, Send, Recv and Observer, and the queues of nodes: reference/backends.md, "Queues of a pipe"."""

from __future__ import annotations

import threading
from typing import Any

import hami
import pytest
from rows import answer, in_register, refused
from running import TIMEOUT, backend, gated


def receiving(name: str = "Receive") -> hami.Queue:
    """Register a backend that puts its data into a queue, and return that queue."""
    received = hami.Queue()

    def forward(batch: list[Any]) -> None:
        for item in batch:
            received.put(item["data"])
            item["result"] = item["data"]

    backend(forward, name)
    return received


def test_queue_send_observer_and_recv_share_a_queue_by_name() -> None:
    received = receiving()
    with hami.pipe("IoC[Queue(q,max=2);S[Send(q),Observer(q)]]") as pipe:
        assert [pipe({"data": number})["result"] for number in (1, 2)] == [1, 1]
        with pytest.raises(hami.DeadlineExceeded):  # the queue is full
            pipe({"data": 3}, timeout=0.02)
    made = f"List[{in_register('DI[Batching, InstanceDispatcher]')}, Recv(q)[Receive]]"
    with hami.pipe({"backend": "Send(q)", "node_entrypoint": made}) as pipe:
        assert [pipe({"data": number})["result"] for number in (1, 2, 3)] == [1, 2, 3]
        assert [received.get(TIMEOUT) for _ in range(3)] == [1, 2, 3]


def test_queues_of_different_pipes_are_independent() -> None:
    with hami.pipe("S[Send(q),Observer(q)]") as first, hami.pipe("S[Send(q),Observer(q)]") as second:
        assert (first({"data": 1})["result"], second({"data": 2})["result"]) == (1, 2)


def test_send_to_the_queue_of_a_node_reaches_its_backend() -> None:
    received = receiving()
    nodes = {"n": {"backend": "Receive"}, "a": {"backend": "Send(n.queue)"}, "dag_entrypoint": "Forward[node.a]"}
    with hami.pipe(nodes) as pipe:
        assert [pipe({"data": number})["result"] for number in (1, 2)] == [1, 2]
        assert [received.get(TIMEOUT) for _ in range(2)] == [1, 2]


def test_observer_of_the_queue_of_a_node_returns_the_first_waiting_request() -> None:
    cls = gated()
    nodes = {"n": {"backend": "TestGated"}, "look": {"backend": "Observer(n.queue)"}}
    with hami.pipe(nodes) as pipe:
        assert pipe({"data": 0, "node_name": "look"})["result"] is None
        running = pipe.submit({"data": 1, "node_name": "n"})
        cls.gate.wait_for_arrival()
        waiting = pipe.submit({"data": 2, "node_name": "n"})
        assert [pipe({"data": 0, "node_name": "look"})["result"] for _ in range(2)] == [2, 2]
        cls.gate.open()
        assert [future.result(TIMEOUT)["result"] for future in (running, waiting)] == [101, 102]


def test_recv_on_the_queue_of_a_node_works_as_one_more_instance() -> None:
    """`Recv` must come before the `Register` of the node."""
    instance, consumer = gated(), gated("Consumer")
    register = "Register[DI[Batching, InstanceDispatcher]]"
    made = f"List[InstancesRegister[Reflect[backend]], Recv(n.queue)[Consumer], {register}]"
    with hami.pipe({"n": {"backend": "TestGated", "node_entrypoint": made}}) as pipe:
        futures = [pipe.submit({"data": number}) for number in range(2)]
        instance.gate.wait_for_arrival()
        consumer.gate.wait_for_arrival()
        assert sorted(instance.seen + consumer.seen) == [[0], [1]]
        instance.gate.open()
        consumer.gate.open()
        assert [future.result(TIMEOUT)["result"] for future in futures] == [100, 101]
    late = made.replace(f"Recv(n.queue)[Consumer], {register}", f"{register}, Recv(n.queue)[Consumer]")
    assert "Recv(n.queue) must be before the node's Register" in refused(
        {"n": {"backend": "Identity", "node_entrypoint": late}}
    )


def test_an_instance_has_its_own_queue() -> None:
    """The names are `<node>.queue.<i>` for the queue and `<node>.<i>` for the instance."""
    received: hami.Queue = hami.Queue()
    made: list[int] = []

    class Numbered(hami.Backend):
        def init(self, options: Any) -> None:
            made.append(0)
            self.number = len(made) - 1

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                received.put((self.number, item["data"]))
                item["result"] = self.number

    hami.register("Numbered")(Numbered)
    nodes = {
        "n": {"backend": "Numbered", "instance_num": 3},
        "a": {"backend": "S[Send(n.queue.0),Send(n.queue.2)]"},
        "dag_entrypoint": "Forward[node.a]",
    }
    with hami.pipe(nodes) as pipe:
        assert [pipe({"data": number})["result"] for number in (5, 6)] == [5, 6]
        assert sorted(received.get(TIMEOUT) for _ in range(4)) == [(0, 5), (0, 6), (2, 5), (2, 6)]
    assert answer({**nodes, "dag_entrypoint": "Forward[n.1]"}, 1) == 4


def test_the_queue_of_a_node_cannot_be_declared() -> None:
    """Its capacity is `max_queue_size` of the node."""
    nodes = {"n": {"backend": "Identity"}, "a": {"backend": "Queue(n.queue)"}, "dag_entrypoint": "Forward[node.a]"}
    assert 'the queue "n.queue" belongs to its node' in refused(nodes)


def test_observer_sees_a_value_until_it_is_received() -> None:
    received: list[Any] = []
    arrived = threading.Event()
    all_there = threading.Event()
    may_receive = threading.Event()

    @hami.register
    class Receive(hami.Backend):
        def forward(self, batch: list[Any]) -> None:
            arrived.set()
            assert may_receive.wait(TIMEOUT)
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
        assert arrived.wait(TIMEOUT)  # the receiver has taken this value and waits
        seen = [pipe({"data": number})["result"] for number in (1, 2, 3)]
        assert seen == [1, 1, 1]  # Observer does not remove the first value
        may_receive.set()
        assert all_there.wait(TIMEOUT)
    assert received == [0, 1, 2, 3]


def test_a_queue_may_be_declared_after_a_backend_that_uses_it() -> None:
    """S initialises its items from right to left, so `Observer` comes first."""
    with hami.pipe("S[Queue(q,max=1),Observer(q)]") as pipe:
        assert pipe({"data": 1})["result"] == 1
        with pytest.raises(hami.DeadlineExceeded):
            pipe({"data": 2}, timeout=0.05)


def test_a_queue_declared_twice_with_different_capacities_is_an_error() -> None:
    with pytest.raises(hami.ConfigError) as caught:
        hami.pipe("S[Queue(q,max=1),Queue(q,max=2)]")
    assert str(caught.value).splitlines()[0] == 'queue "q" is declared with capacity 2 and with 1; declare it once'


def test_send_to_a_full_node_that_rejects_fails() -> None:
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


def test_every_pipe_has_a_default_queue_that_needs_no_name() -> None:
    assert answer("S[Send,Observer]", 4) == 4
    assert answer("S[Send,Observer(default)]", 5) == 5


def test_an_observer_of_an_empty_queue_returns_none() -> None:
    assert answer("Observer(q)", 1) is None

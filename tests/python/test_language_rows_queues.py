"""Rules of Queue, Send, Recv and Observer: reference/backends.md, "Queues of a pipe"."""

from __future__ import annotations

from typing import Any

import hami
import pytest
from rows import answer, in_register, refused
from running import PATIENCE, backend, gated


def receiving(name: str = "Receive") -> hami.Queue:
    """Register a backend that puts what it gets into the queue that is returned."""
    received = hami.Queue()

    def forward(batch: list[Any]) -> None:
        for item in batch:
            received.put(item["data"])
            item["result"] = item["data"]

    backend(forward, name)
    return received


def test_queue_send_observer_and_recv_share_a_queue_by_name() -> None:
    """Push `data`; a consumer that runs B on what arrives; look without taking."""
    received = receiving()
    with hami.pipe("IoC[Queue(q,max=2);S[Send(q),Observer(q)]]") as pipe:
        assert [pipe({"data": number})["result"] for number in (1, 2)] == [1, 1]
        with pytest.raises(hami.DeadlineExceeded):  # it is bounded
            pipe({"data": 3}, timeout=0.02)
    made = f"List[{in_register('DI[Batching, InstanceDispatcher]')}, Recv(q)[Receive]]"
    with hami.pipe({"backend": "Send(q)", "node_entrypoint": made}) as pipe:
        assert [pipe({"data": number})["result"] for number in (1, 2, 3)] == [1, 2, 3]
        assert [received.get(PATIENCE) for _ in range(3)] == [1, 2, 3]


def test_queues_belong_to_the_pipe() -> None:
    """Named bounded queues of the pipe."""
    with hami.pipe("S[Send(q),Observer(q)]") as first, hami.pipe("S[Send(q),Observer(q)]") as second:
        assert (first({"data": 1})["result"], second({"data": 2})["result"]) == (1, 2)


def test_send_to_a_nodes_queue_reaches_its_backend() -> None:
    """A node's own are addressable: `<node>.queue`."""
    received = receiving()
    nodes = {"n": {"backend": "Receive"}, "a": {"backend": "Send(n.queue)"}, "dag_entrypoint": "Forward[node.a]"}
    with hami.pipe(nodes) as pipe:
        assert [pipe({"data": number})["result"] for number in (1, 2)] == [1, 2]
        assert [received.get(PATIENCE) for _ in range(2)] == [1, 2]


def test_observer_of_a_nodes_queue_sees_what_waits_there() -> None:
    """Look without taking: `Observer(<node>.queue)`."""
    cls = gated()
    nodes = {"n": {"backend": "TestGated"}, "look": {"backend": "Observer(n.queue)"}}
    with hami.pipe(nodes) as pipe:
        assert pipe({"data": 0, "node_name": "look"})["result"] is None
        running = pipe.submit({"data": 1, "node_name": "n"})
        cls.gate.wait_for_arrival()
        waiting = pipe.submit({"data": 2, "node_name": "n"})
        assert [pipe({"data": 0, "node_name": "look"})["result"] for _ in range(2)] == [2, 2]
        cls.gate.open()
        assert [future.result(PATIENCE)["result"] for future in (running, waiting)] == [101, 102]


def test_recv_of_a_nodes_queue_serves_as_one_more_instance() -> None:
    """A consumer (*B_c*) that runs B on what arrives in `<node>.queue`; written before the node's Register."""
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
        assert [future.result(PATIENCE)["result"] for future in futures] == [100, 101]
    late = made.replace(f"Recv(n.queue)[Consumer], {register}", f"{register}, Recv(n.queue)[Consumer]")
    assert "Recv(n.queue) comes too late" in refused({"n": {"backend": "Identity", "node_entrypoint": late}})


def test_send_to_an_instance_of_a_node_feeds_that_one() -> None:
    """*Q_i* `<node>.queue.<i>`, *B_i* `<node>.<i>`."""
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
        assert sorted(received.get(PATIENCE) for _ in range(4)) == [(0, 5), (0, 6), (2, 5), (2, 6)]
    assert answer({**nodes, "dag_entrypoint": "Forward[n.1]"}, 1) == 4


def test_queue_of_a_node_is_there_with_its_node() -> None:
    """A node's own are addressable; how much it holds is `max_queue_size` of the node."""
    nodes = {"n": {"backend": "Identity"}, "a": {"backend": "Queue(n.queue)"}, "dag_entrypoint": "Forward[node.a]"}
    assert 'the queue "n.queue" belongs to its node' in refused(nodes)

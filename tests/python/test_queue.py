"""hami.Queue: bounded, ordered, and closed with a notification for every waiting thread."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

import hami
import pytest


def run(*functions: Callable[[], Any]) -> list[threading.Thread]:
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    return threads


def test_items_are_returned_in_order_as_the_same_objects() -> None:
    queue = hami.Queue(max=4)
    items = [object(), [1], "text", None]
    for item in items:
        queue.put(item)
    assert len(queue) == 4
    assert all(queue.get() is item for item in items)
    assert len(queue) == 0


def test_a_queue_holds_1024_items_by_default() -> None:
    assert hami.Queue().max == 1024
    assert hami.Queue(3).max == 3
    assert hami.Queue(name="frames").name == "frames"


@pytest.mark.parametrize("given", [0, -1])
def test_a_capacity_below_one_is_an_error(given: int) -> None:
    with pytest.raises(hami.ConfigError) as caught:
        hami.Queue(max=given, name="frames")
    assert str(caught.value) == f'max of queue "frames" is {given}; it must be at least 1'


def test_putting_into_a_full_queue_fails_or_times_out() -> None:
    queue = hami.Queue(max=1)
    assert queue.try_put(1) is True
    assert queue.try_put(2) is False
    with pytest.raises(hami.QueueFull) as full:
        queue.put(2, timeout=0)
    assert str(full.value) == "the queue is full; it holds at most 1"
    with pytest.raises(hami.DeadlineExceeded) as late:
        queue.put(2, timeout=0.001)
    assert str(late.value) == "the queue stayed full until the deadline; it holds at most 1"
    assert len(queue) == 1


def test_getting_from_an_empty_queue_returns_the_default_or_times_out() -> None:
    queue = hami.Queue(name="frames")
    assert queue.try_get() is None
    assert queue.try_get(default="nothing") == "nothing"
    for timeout in (0, 0.001):
        with pytest.raises(hami.DeadlineExceeded) as late:
            queue.get(timeout=timeout)
        assert str(late.value) == 'queue "frames" stayed empty until the deadline'


def test_peek_does_not_remove_the_item() -> None:
    queue = hami.Queue()
    assert queue.peek() is None
    assert queue.peek(default="nothing") == "nothing"
    queue.put("first")
    queue.put("second")
    assert (queue.peek(), queue.peek(), len(queue)) == ("first", "first", 2)


def test_put_waits_for_capacity_and_get_for_an_item() -> None:
    queue, got = hami.Queue(max=1), []
    queue.put(0)
    threads = run(lambda: [queue.put(i, timeout=60) for i in range(1, 50)])
    got = [queue.get(timeout=60) for _ in range(50)]
    threads[0].join()
    assert got == list(range(50))


def test_a_closed_queue_returns_its_items_and_then_raises() -> None:
    queue = hami.Queue(name="frames")
    queue.put(1)
    queue.put(2)
    assert not queue.closed
    queue.close()
    queue.close()
    assert queue.closed
    for put in (queue.put, queue.try_put):
        with pytest.raises(hami.PipeClosed) as caught:
            put(3)
        assert str(caught.value) == 'queue "frames" is closed'
    assert queue.get() == 1
    assert queue.try_get() == 2
    for get in (queue.get, queue.try_get):
        with pytest.raises(hami.PipeClosed):
            get()


def test_close_wakes_waiting_threads() -> None:
    full, empty = hami.Queue(max=1), hami.Queue()
    full.put(0)
    woken, waiting = [], threading.Barrier(3)

    def wait(action: Callable[[], Any]) -> None:
        waiting.wait()
        with pytest.raises(hami.PipeClosed):
            action()
        woken.append(True)

    threads = run(lambda: wait(lambda: full.put(1)), lambda: wait(empty.get))
    waiting.wait()
    full.close()
    empty.close()
    for thread in threads:
        thread.join()
    assert woken == [True, True]


def test_iteration_ends_when_the_queue_is_closed_and_empty() -> None:
    queue = hami.Queue(max=2)

    def produce() -> None:
        for i in range(20):
            queue.put(i)
        queue.close()

    threads = run(produce)
    assert list(queue) == list(range(20))
    threads[0].join()


def test_many_threads_move_every_item_once() -> None:
    queue = hami.Queue(max=2)
    got: list[int] = []
    consumers = run(*[lambda: got.extend(queue)] * 3)
    producers = run(*[lambda: [queue.put(i) for i in range(100)]] * 3)
    for thread in producers:
        thread.join()
    queue.close()
    for thread in consumers:
        thread.join()
    assert sorted(got) == sorted([*range(100)] * 3)


@pytest.mark.parametrize("action", ["put", "get", "iterate"])
def test_ctrl_c_ends_a_wait(action: str) -> None:
    queue = hami.Queue(max=1)
    if action == "put":
        queue.put(0)
    waiting = threading.Event()

    def press() -> None:
        waiting.wait()
        signal.raise_signal(signal.SIGINT)

    threads = run(press)
    waits = {
        "put": lambda: queue.put(1, timeout=60),
        "get": lambda: queue.get(timeout=60),
        "iterate": lambda: list(queue),
    }
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        waiting.set()
        waits[action]()
    threads[0].join()


def test_a_queue_passes_through_a_pipe_as_the_same_object() -> None:
    queue = hami.Queue()
    with hami.pipe("Identity") as pipe:
        assert pipe({"data": queue})["result"] is queue


def test_a_queue_in_a_queue_stays_the_same_object() -> None:
    outer, inner = hami.Queue(), hami.Queue(name="inner")
    outer.put(inner)
    assert outer.get() is inner


def test_repr_shows_the_fill_level() -> None:
    queue = hami.Queue(max=4, name="frames")
    queue.put(1)
    assert repr(queue) == '<hami.Queue "frames": 1 of 4>'
    queue.close()
    assert repr(queue) == '<hami.Queue "frames": 1 of 4, closed>'
    assert repr(hami.Queue(max=2)) == "<hami.Queue: 0 of 2>"

"""Requests from asyncio tasks and from iterables: `acall` and `map`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Iterator
from typing import Any

import hami
import pytest
from running import TIMEOUT, each, gated


def test_a_task_gets_its_dict_back() -> None:
    async def main() -> None:
        with hami.pipe("Identity") as pipe:
            request = {"data": 1, "kept": 2}
            assert await pipe.acall(request) is request
            assert request == {"data": 1, "kept": 2, "result": 1}

    asyncio.run(main())


def test_acall_without_a_running_loop_is_an_error() -> None:
    with hami.pipe("Identity") as pipe, pytest.raises(RuntimeError, match="acall needs a running asyncio loop"):
        pipe.acall({"data": 1}).send(None)


@pytest.mark.parametrize("thread", ["dedicated", "serialized"])
def test_many_tasks_wait_for_one_pipe(thread: str) -> None:
    each(lambda number: number + 1, "TestAddOne", thread=thread)

    async def main() -> None:
        with hami.pipe({"backend": "TestAddOne", "max": 64, "max_queue_size": 4}) as pipe:
            done = await asyncio.gather(*(pipe.acall({"data": number}) for number in range(10_000)))
            assert [request["result"] for request in done] == [number + 1 for number in range(10_000)]

    asyncio.run(main())


def test_an_error_is_raised_in_its_task_and_the_next_request_succeeds() -> None:
    def fail(number: int) -> int:
        if number < 0:
            raise ValueError("below zero")
        if number == 0:
            raise StopIteration("nothing left")
        if number == 1:
            raise asyncio.CancelledError("by no task")
        return number

    each(fail, "TestFails")

    async def main() -> None:
        with hami.pipe("TestFails") as pipe:
            request = {"data": -1}
            with pytest.raises(ValueError, match="below zero"):
                await pipe.acall(request)
            assert "result" not in request
            with pytest.raises(hami.BackendExit, match="the backend raised StopIteration"):
                await pipe.acall({"data": 0})
            task = asyncio.create_task(pipe.acall({"data": 1}))
            with pytest.raises(hami.BackendExit, match="the backend raised CancelledError"):
                await task
            assert not task.cancelled()
            with pytest.raises(hami.DataTypeError, match=r"^acall takes one dict such as \{\"data\": …\}, got list$"):
                await pipe.acall([])  # type: ignore[arg-type]
            assert (await pipe.acall({"data": 3}))["result"] == 3
        with pytest.raises(hami.PipeClosed):
            await pipe.acall({"data": 1})

    asyncio.run(main())


HOOKED = "List[InstancesRegister[Reflect[backend]], Register[DI[Batching, InstanceDispatcher[TestGated]]]]"
FIRST = "List[InstancesRegister[Reflect[backend]], Register[S[TestGated,DI[Batching, InstanceDispatcher]]]]"


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("entry", [HOOKED, FIRST])
def test_the_loop_stays_responsive_while_a_backend_before_the_queue_is_busy(entry: str, graph: bool) -> None:
    cls = gated()
    nodes: dict[str, Any] = {"first": {"backend": "Identity", "node_entrypoint": entry}}
    if graph:
        nodes["first"]["next"] = "last"
        nodes["last"] = {"backend": "Identity"}

    async def main() -> None:
        with hami.pipe(nodes) as pipe:
            task = asyncio.create_task(pipe.acall({"data": 1}))
            await asyncio.get_running_loop().run_in_executor(None, cls.gate.wait_for_arrival)
            cls.gate.open()
            assert (await task)["result"] == 101

    asyncio.run(main())


def test_a_full_queue_does_not_block_the_loop_and_cancelling_the_task_cancels_the_request() -> None:
    """`acall` awaits capacity."""
    cls = gated()

    async def main() -> None:
        with hami.pipe({"backend": "TestGated", "max_queue_size": 1}) as pipe:
            tasks = [asyncio.create_task(pipe.acall({"data": number})) for number in range(6)]
            await asyncio.get_running_loop().run_in_executor(None, cls.gate.wait_for_arrival)
            tasks[3].cancel()
            with pytest.raises(asyncio.CancelledError):
                await tasks[3]
            cls.gate.open()
            done = await asyncio.gather(*tasks[:3], *tasks[4:])
            assert [request["result"] for request in done] == [100, 101, 102, 104, 105]
            assert 3 not in [number for batch in cls.seen for number in batch]

    asyncio.run(main())


def test_a_node_without_a_queue_does_not_block_the_loop() -> None:
    """Its backend runs on the thread that submits the request, which is not the thread of the loop."""
    cls = gated(thread="serialized")

    async def main() -> None:
        node = {"backend": "TestGated", "node_entrypoint": "Register[StateFul[Reflect[backend]]]"}
        with hami.pipe(node) as pipe:
            task = asyncio.create_task(pipe.acall({"data": 1, "req_id": 7}))
            await asyncio.sleep(0)
            await asyncio.get_running_loop().run_in_executor(None, cls.gate.wait_for_arrival)
            cls.gate.open()
            assert (await task)["result"] == 101

    asyncio.run(main())


def test_queue_full_is_raised_in_the_task() -> None:
    cls = gated()

    async def main() -> None:
        with hami.pipe({"backend": "TestGated", "max_queue_size": 1, "on_full": "reject"}) as pipe:
            running = asyncio.create_task(pipe.acall({"data": 1}))
            await asyncio.get_running_loop().run_in_executor(None, cls.gate.wait_for_arrival)
            queued = asyncio.create_task(pipe.acall({"data": 2}))
            await asyncio.sleep(0)
            with pytest.raises(hami.QueueFull):
                await pipe.acall({"data": 3})
            cls.gate.open()
            assert (await running)["result"] == 101
            assert (await queued)["result"] == 102

    asyncio.run(main())


def test_a_timeout_ends_the_wait_while_the_backend_continues() -> None:
    cls = gated()

    async def main() -> None:
        with hami.pipe("TestGated") as pipe:
            with pytest.raises(hami.DeadlineExceeded):
                await pipe.acall({"data": 1}, timeout=0.01)
            cls.gate.open()

    asyncio.run(main())


class Loop(asyncio.SelectorEventLoop):
    """An event loop that counts how often another thread wakes it for completed requests."""

    woken = 0

    def call_soon_threadsafe(self, callback: Any, *arguments: Any, context: Any = None) -> asyncio.Handle:
        self.woken += getattr(callback, "__module__", "").startswith("hami.")
        return super().call_soon_threadsafe(callback, *arguments, context=context)


def test_a_batch_wakes_its_loop_once() -> None:
    """Each wake-up is a system call that releases the GIL, and the loop would run for one result of many."""
    cls = gated()

    async def main() -> None:
        with hami.pipe({"backend": "TestGated", "max": 64, "batching": "greedy"}) as pipe:
            first = asyncio.create_task(pipe.acall({"data": 0}))
            await asyncio.sleep(0)
            await loop.run_in_executor(None, cls.gate.wait_for_arrival)
            tasks = [asyncio.create_task(pipe.acall({"data": number})) for number in range(1, 65)]
            await asyncio.sleep(0)
            cls.gate.open()
            assert [(await task)["result"] for task in (first, *tasks)] == list(range(100, 165))

    loop = Loop()
    with contextlib.closing(loop):
        loop.run_until_complete(main())
    assert [len(batch) for batch in cls.seen] == [1, 64]
    assert loop.woken <= 2


def test_a_callback_may_wait_for_a_task_that_completed_before_it() -> None:
    cls = gated()
    pipe = hami.pipe({"backend": "TestGated", "max": 3})
    completed, seen = threading.Event(), []

    async def main() -> None:
        first = asyncio.create_task(pipe.acall({"data": 0}))
        await asyncio.sleep(0)
        await asyncio.get_running_loop().run_in_executor(None, cls.gate.wait_for_arrival)
        task = asyncio.create_task(pipe.acall({"data": 1}))
        await asyncio.sleep(0)
        future = pipe.submit({"data": 2})
        future.add_done_callback(lambda _: seen.append(completed.wait(TIMEOUT)))
        cls.gate.open()
        await task
        completed.set()
        await first

    with pipe:
        asyncio.run(main())
    assert cls.seen == [[0], [1, 2]]
    assert seen == [True]


def test_results_for_a_closed_loop_are_discarded() -> None:
    cls = gated()
    with hami.pipe("TestGated") as pipe:

        async def abandon() -> None:
            asyncio.create_task(pipe.acall({"data": 1}))  # noqa: RUF006
            await asyncio.sleep(0)
            await asyncio.get_running_loop().run_in_executor(None, cls.gate.wait_for_arrival)

        asyncio.run(abandon())
        cls.gate.open()
        assert pipe({"data": 2}, timeout=TIMEOUT)["result"] == 102


def test_closing_a_coroutine_leaves_no_unretrieved_error() -> None:
    cls = gated()
    contexts: list[dict[str, Any]] = []
    with hami.pipe("TestGated") as pipe:

        async def close_one() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: contexts.append(context))
            coroutine = pipe.acall({"data": 1})
            coroutine.send(None)
            coroutine.close()

        asyncio.run(close_one())
        cls.gate.open()
    gc.collect()
    assert contexts == []


def test_map_keeps_the_order_and_reads_only_as_far_ahead_as_its_concurrency() -> None:
    each(lambda number: number + 1, "TestAddOne")
    taken: list[int] = []

    def numbers() -> Iterator[dict[str, Any]]:
        number = 0
        while True:
            taken.append(number)
            yield {"data": number}
            number += 1

    with hami.pipe({"backend": "TestAddOne", "instance_num": 2}) as pipe:
        results = pipe.map(numbers(), concurrency=4)
        assert taken == []
        assert [next(results)["result"] for _ in range(10)] == list(range(1, 11))
        assert len(taken) == 13
        results.close()  # type: ignore[attr-defined]
        assert [request["result"] for request in pipe.map(({"data": n} for n in range(3)), concurrency=8)] == [1, 2, 3]
        for wrong in (0, -1, 1.5, float("nan"), "4"):
            with pytest.raises(ValueError, match=f"^concurrency must be an int of at least 1, got {wrong!r}$"):
                pipe.map([], concurrency=wrong)  # type: ignore[arg-type]


def test_map_rejects_a_dict_that_is_still_in_flight() -> None:
    with hami.pipe("Identity") as pipe:
        with pytest.raises(hami.DataTypeError) as raised:
            list(pipe.map([{"data": 1}] * 3))
        assert str(raised.value) == (
            "the same dict was passed again while its request is running; pass a separate dict for each request"
        )
        assert len(list(pipe.map([{"data": 1}] * 3, concurrency=1))) == 3


def test_map_raises_the_first_error_and_cancels_later_requests() -> None:
    gate = threading.Event()
    ran: list[int] = []

    def work(number: int) -> int:
        ran.append(number)
        if number == 0:
            raise ValueError("zero")
        assert gate.wait(TIMEOUT)
        return number

    each(work, "TestWork")
    with hami.pipe("TestWork") as pipe:
        results = pipe.map([{"data": 0}, {"data": 1}, {"data": 2}], concurrency=3)
        with pytest.raises(ValueError, match="zero"):
            next(results)
        gate.set()
    assert 2 not in ran

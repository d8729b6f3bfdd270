"""Pipes under trio and anyio: what the table "Event loops" of the reference says."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import hami
import pytest
from running import TIMEOUT, backend, each, gated

trio = pytest.importorskip("trio", reason="trio is not installed")
anyio = pytest.importorskip("anyio", reason="anyio is not installed")

RUNS: dict[str, Callable[[Any], Any]] = {"trio": trio.run, "anyio": lambda main: anyio.run(main, backend="trio")}


@pytest.fixture(params=RUNS)
def run_in_trio(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    return RUNS[request.param]


def test_tasks_of_trio_call_a_pipe_in_threads(run_in_trio: Callable[[Any], Any]) -> None:
    each(lambda number: number + 1, "TestAddOne")
    results: dict[int, int] = {}

    async def main() -> None:
        async def call(number: int) -> None:
            results[number] = (await trio.to_thread.run_sync(pipe, {"data": number}))["result"]

        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(call, number)

    with hami.pipe({"backend": "TestAddOne", "max": 8}) as pipe:
        run_in_trio(main)
    assert results == {number: number + 1 for number in range(100)}


def test_other_tasks_of_trio_run_while_one_waits(run_in_trio: Callable[[Any], Any]) -> None:
    """The backend returns only after another task has opened the gate."""
    gate = gated().gate

    async def main() -> None:
        with trio.fail_after(TIMEOUT):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, pipe, request)
                await trio.to_thread.run_sync(gate.wait_for_arrival)
                gate.open()

    request: dict[str, Any] = {"data": 1}
    with hami.pipe("TestGated") as pipe:
        run_in_trio(main)
    assert request["result"] == 101


def test_an_error_is_raised_in_its_task_of_trio(run_in_trio: Callable[[Any], Any]) -> None:
    each(lambda number: 1 // number, "TestDivides")

    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            await trio.to_thread.run_sync(pipe, {"data": 0})
        assert (await trio.to_thread.run_sync(pipe, {"data": 1}))["result"] == 1

    with hami.pipe("TestDivides") as pipe:
        run_in_trio(main)


def test_acall_under_trio_is_an_error_that_says_what_to_call(run_in_trio: Callable[[Any], Any]) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"or under trio: await trio\.to_thread\.run_sync\(pipe, request\)$"):
            await pipe.acall({"data": 1})

    with hami.pipe("Identity") as pipe:
        run_in_trio(main)


def test_tasks_of_anyio_on_asyncio_await_a_pipe() -> None:
    each(lambda number: number + 1, "TestAddOne")
    results: dict[int, int] = {}

    async def main() -> None:
        async def call(number: int) -> None:
            results[number] = (await pipe.acall({"data": number}))["result"]

        async with anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(call, number)

    with hami.pipe({"backend": "TestAddOne", "max": 8}) as pipe:
        anyio.run(main, backend="asyncio")
    assert results == {number: number + 1 for number in range(100)}


def test_a_task_of_anyio_on_asyncio_awaits_an_event() -> None:
    each(lambda number: number + 1, "TestAddOne")

    async def main() -> None:
        event = hami.Event()
        request = {"data": 1, "event": event}
        pipe(request)
        with anyio.fail_after(TIMEOUT):
            await event
        assert request["result"] == 2

    with hami.pipe("TestAddOne") as pipe:
        anyio.run(main, backend="asyncio")


def test_a_cancelled_scope_of_anyio_on_asyncio_cancels_its_request() -> None:
    started = asyncio.Event()
    cancelled = []

    def run_until_cancelled(batch: list[Any]) -> None:
        loop.call_soon_threadsafe(started.set)
        while not batch[0].cancelled:
            os.sched_yield()
        cancelled.append(batch[0]["data"])

    backend(run_until_cancelled, "TestLong")

    async def main() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        async with anyio.create_task_group() as group:
            group.start_soon(pipe.acall, {"data": 1})
            await started.wait()
            group.cancel_scope.cancel()

    loop: Any = None
    with hami.pipe("TestLong") as pipe:
        anyio.run(main, backend="asyncio")
    assert cancelled == [1]

"""What a task sees of a request that it awaits: its context, cancellations, errors, other tasks that end the loop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import weakref
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import hami
import pytest
from hami._runtime.tasks import _Outcomes, start
from running import each, gated

Run = Callable[[Coroutine[Any, Any, None]], None]


def _run_in_debug_mode(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main, debug=True)


def _run_with_tasks_in_python(main: Coroutine[Any, Any, None]) -> None:
    """Without what CPython has in C: its tasks, and those of other loops, do what the protocol of futures says."""

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **how: Any) -> Any:
        return asyncio.tasks._PyTask(coroutine, loop=loop, **how)  # type: ignore[attr-defined]

    loop = asyncio.new_event_loop()
    # From 3.14 on what is in C does not see the task in Python that runs.
    current_task = getattr(asyncio.tasks, "_py_current_task", asyncio.current_task)
    with contextlib.closing(loop), pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.tasks, "current_task", current_task)
        loop.set_task_factory(make)
        loop.run_until_complete(main)


@pytest.fixture(params=[asyncio.run, _run_in_debug_mode, _run_with_tasks_in_python])
def run(request: pytest.FixtureRequest) -> Run:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def no_gc() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


async def _arrived(cls: Any) -> None:
    await asyncio.get_running_loop().run_in_executor(None, cls.gate.wait_for_arrival)


async def _waiting(pipe: hami.Pipe, count: int) -> list[asyncio.Task[dict[str, Any]]]:
    """Start tasks that each await a request, in the order of their numbers."""
    tasks = [asyncio.create_task(pipe.acall({"data": number})) for number in range(count)]
    await asyncio.sleep(0)
    return tasks


def test_a_task_goes_on_in_its_own_context(run: Run) -> None:
    cls = gated()
    who = contextvars.ContextVar[int]("who")

    async def ask(pipe: hami.Pipe, number: int) -> None:
        who.set(number)
        await pipe.acall({"data": number})
        assert who.get() == number
        who.set(-number)
        await pipe.acall({"data": number})
        assert who.get() == -number

    async def main() -> None:
        who.set(1000)
        with hami.pipe({"backend": "TestGated", "max": 8}) as pipe:
            tasks = [asyncio.create_task(ask(pipe, number)) for number in range(1, 9)]
            await asyncio.sleep(0)
            await _arrived(cls)
            cls.gate.open()
            await asyncio.gather(*tasks)
        assert who.get() == 1000

    run(main())


def test_a_task_is_cancelled_with_its_message_while_others_are_served(run: Run) -> None:
    cls = gated()
    messages: list[tuple[Any, ...]] = []

    async def ask(pipe: hami.Pipe) -> None:
        try:
            await pipe.acall({"data": 0})
        except asyncio.CancelledError as error:  # until 3.11 only the task itself sees the message
            messages.append(error.args)
            raise

    async def main() -> None:
        with hami.pipe({"backend": "TestGated", "max": 4}) as pipe:
            served = await _waiting(pipe, 2)
            cancelled = [asyncio.create_task(ask(pipe)) for _ in range(2)]
            await asyncio.sleep(0)
            await _arrived(cls)
            assert cancelled[0].cancel("not needed")
            assert cancelled[1].cancel()
            for task in cancelled:
                with pytest.raises(asyncio.CancelledError):
                    await task
            cls.gate.open()
            assert [(await task)["result"] for task in served] == [100, 101]
        assert messages == [("not needed",), ()]

    run(main())


def test_time_limits_of_asyncio_and_shields(run: Run) -> None:
    cls = gated()

    async def main() -> None:
        with hami.pipe({"backend": "TestGated", "max": 4}) as pipe:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(pipe.acall({"data": 1}), 0.01)
            kept = asyncio.ensure_future(pipe.acall({"data": 2}))
            outer = asyncio.ensure_future(asyncio.shield(kept))
            await asyncio.sleep(0)
            outer.cancel()
            with pytest.raises(asyncio.CancelledError):
                await outer
            cls.gate.open()
            assert (await kept)["result"] == 102

    run(main())


@pytest.mark.parametrize("ends", [SystemExit, KeyboardInterrupt])
def test_a_task_that_ends_the_loop_takes_no_outcome_from_others(ends: type[BaseException]) -> None:
    cls = gated()
    tasks: list[asyncio.Task[Any]] = []

    async def end(pipe: hami.Pipe) -> None:
        await pipe.acall({"data": -1})
        raise ends

    async def main(pipe: hami.Pipe) -> None:
        tasks.append(asyncio.create_task(pipe.acall({"data": 0})))
        await asyncio.sleep(0)
        await _arrived(cls)
        tasks.append(asyncio.create_task(end(pipe)))
        tasks.extend(await _waiting(pipe, 3))
        cls.gate.open()
        await asyncio.wait(tasks)

    loop = asyncio.new_event_loop()
    with contextlib.closing(loop), hami.pipe({"backend": "TestGated", "max": 4, "batching": "greedy"}) as pipe:
        running = loop.create_task(main(pipe))
        with pytest.raises(ends):
            loop.run_until_complete(running)
        loop.run_until_complete(asyncio.wait(tasks))
        assert isinstance(tasks[1].exception(), ends)
        assert [task.result()["result"] for task in tasks[2:]] == [100, 101, 102]
        loop.run_until_complete(running)
    assert [len(batch) for batch in cls.seen] == [1, 4]


@pytest.mark.usefixtures("no_gc")
@pytest.mark.parametrize("waits", [False, True])
def test_what_an_error_holds_goes_with_it(waits: bool) -> None:
    """Without the help of the garbage collector, which may come late: an error holds frames, they hold requests."""

    class Large:
        pass

    def fail(_: Large) -> None:
        raise ValueError("no")

    each(fail, "TestFails", thread="dedicated" if waits else "concurrent")
    held: list[weakref.ref[Large]] = []

    async def ask(pipe: hami.Pipe) -> None:
        large = Large()
        held.append(weakref.ref(large))
        with contextlib.suppress(ValueError):
            await pipe.acall({"data": large})

    async def main() -> None:
        with hami.pipe("TestFails") as pipe:
            await asyncio.gather(*(ask(pipe) for _ in range(4)))
            await ask(pipe)
        await asyncio.sleep(0)  # until then asyncio itself holds what it last threw into the task
        assert [each() for each in held] == [None] * 5

    asyncio.run(main())


def test_a_request_is_awaited_once() -> None:
    cls = gated()

    async def main() -> None:
        with hami.pipe("TestGated") as pipe:
            answer = start(pipe._core, {"data": 1}, None)
            first = asyncio.ensure_future(_await(answer))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="a request can be awaited only once, by one task"):
                await answer
            with pytest.raises(TypeError, match="only the task that awaits the request can add a callback"):
                answer.add_done_callback(print, context=contextvars.copy_context())
            cls.gate.open()
            await first
            assert not answer.cancel()
            await answer
            gone = start(pipe._core, {"data": 1}, None)
            gone.abandon()
            with pytest.raises(RuntimeError, match="a request can be awaited only once, by one task"):
                await gone

    asyncio.run(main())


def test_a_task_that_comes_after_the_outcome_is_called(run: Run) -> None:
    """Who begins a coroutine at once, and makes a task only of one that waits, may be that late."""
    each(lambda number: number + 100, "TestAdds", thread="dedicated")

    class Rest:
        def __init__(self, coroutine: Coroutine[Any, Any, Any], awaited: Any) -> None:
            self._coroutine = coroutine
            self._awaited = awaited

        def __await__(self) -> Iterator[Any]:
            yield self._awaited
            try:
                self._coroutine.send(None)
            except StopIteration as end:
                return end.value

    async def main() -> None:
        with hami.pipe("TestAdds") as pipe:
            begun = pipe.acall({"data": 1})
            awaited = begun.send(None)
            assert (await pipe.acall({"data": 2}))["result"] == 102  # told after the first
            assert (await Rest(begun, awaited))["result"] == 101

    run(main())


def test_a_task_whose_coroutine_is_closed_by_another_is_called(run: Run) -> None:
    cls = gated()

    async def main() -> None:
        with hami.pipe("TestGated") as pipe:
            coroutine = pipe.acall({"data": 1})
            task = asyncio.ensure_future(coroutine)
            await asyncio.sleep(0)
            await _arrived(cls)
            coroutine.close()
            with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
                await task
            cls.gate.open()

    run(main())


def test_a_task_may_run_its_loop_until_an_outcome_behind_its_own_is_there() -> None:
    """As nest_asyncio lets it, in notebooks."""

    class Nested:
        _nest_patched = True

        def __init__(self) -> None:
            self.ready: list[Callable[[], None]] = []

        def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
            self.ready.append(callback)

    class Told:
        def __init__(self, call_task: Callable[[], None]) -> None:
            self.settle = call_task

    def run_inside() -> None:
        while not told:
            loop.ready.pop(0)()

    told: list[str] = []
    loop: Any = Nested()
    outcomes = _Outcomes(loop)
    outcomes.put(Told(run_inside))  # type: ignore[arg-type]
    outcomes.put(Told(lambda: told.append("behind")))  # type: ignore[arg-type]
    outcomes.wake()
    loop.ready.pop(0)()
    assert told == ["behind"]


async def _await(answer: Any) -> None:
    await answer

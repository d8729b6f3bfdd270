"""Tasks that await requests: context, cancellation, errors, and tasks that end the loop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import weakref
from collections.abc import Callable, Coroutine, Iterator
from importlib.util import find_spec
from typing import Any

import hami
import pytest
from hami._runtime.tasks import _CompletionQueue, start
from running import each, gated

Run = Callable[[Coroutine[Any, Any, None]], None]


def _run_in_debug_mode(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main, debug=True)


def _run_with_tasks_in_python(main: Coroutine[Any, Any, None]) -> None:
    """Use the Python implementation of tasks instead of the C one; other loops do the same."""

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **how: Any) -> Any:
        return asyncio.tasks._PyTask(coroutine, loop=loop, **how)  # type: ignore[attr-defined]

    loop = asyncio.new_event_loop()
    # From Python 3.14 on, the C implementation does not know the running Python task.
    current_task = getattr(asyncio.tasks, "_py_current_task", asyncio.current_task)
    with contextlib.closing(loop), pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.tasks, "current_task", current_task)
        loop.set_task_factory(make)
        loop.run_until_complete(main)


def _run_in_uvloop(main: Coroutine[Any, Any, None]) -> None:
    import uvloop

    loop = uvloop.new_event_loop()
    with contextlib.closing(loop):
        loop.run_until_complete(main)


_needs_uvloop = pytest.mark.skipif(find_spec("uvloop") is None, reason="uvloop is not installed")


@pytest.fixture(
    params=[
        asyncio.run,
        _run_in_debug_mode,
        _run_with_tasks_in_python,
        pytest.param(_run_in_uvloop, marks=_needs_uvloop),
    ]
)
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


def test_a_task_continues_in_its_own_context(run: Run) -> None:
    cls = gated()
    number_of_task = contextvars.ContextVar[int]("number_of_task")

    async def ask(pipe: hami.Pipe, number: int) -> None:
        number_of_task.set(number)
        await pipe.acall({"data": number})
        assert number_of_task.get() == number
        number_of_task.set(-number)
        await pipe.acall({"data": number})
        assert number_of_task.get() == -number

    async def main() -> None:
        number_of_task.set(1000)
        with hami.pipe({"backend": "TestGated", "max": 8}) as pipe:
            tasks = [asyncio.create_task(ask(pipe, number)) for number in range(1, 9)]
            await asyncio.sleep(0)
            await _arrived(cls)
            cls.gate.open()
            await asyncio.gather(*tasks)
        assert number_of_task.get() == 1000

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
def test_a_task_that_ends_the_loop_does_not_affect_the_results_of_others(ends: type[BaseException]) -> None:
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
def test_objects_in_the_frames_of_an_error_are_freed_with_it(waits: bool) -> None:
    """The garbage collector must not be needed: an error refers to frames, and these refer to requests."""

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
        await asyncio.sleep(0)  # until then, asyncio itself refers to the last exception of the task
        assert [each() for each in held] == [None] * 5

    asyncio.run(main())


def test_a_request_can_be_awaited_once() -> None:
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


def test_a_task_created_after_the_request_completed_is_resumed(run: Run) -> None:
    """Eager execution starts a coroutine at once and creates a task only if it waits."""
    each(lambda number: number + 100, "TestAdds", thread="dedicated")

    class Remainder:
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
            started = pipe.acall({"data": 1})
            awaited = started.send(None)
            assert (await pipe.acall({"data": 2}))["result"] == 102  # completes after the first request
            assert (await Remainder(started, awaited))["result"] == 101

    run(main())


def test_a_task_whose_coroutine_is_closed_elsewhere_is_resumed(run: Run) -> None:
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


def test_a_task_may_run_its_loop_until_a_later_outcome_arrives() -> None:
    """nest_asyncio does this in notebooks."""

    class Nested:
        _nest_patched = True

        def __init__(self) -> None:
            self.ready: list[Callable[[], None]] = []

        def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
            self.ready.append(callback)

    class Completed:
        def __init__(self, call_task: Callable[[], None]) -> None:
            self.settle = call_task

    def run_inside() -> None:
        while not done:
            loop.ready.pop(0)()

    done: list[str] = []
    loop: Any = Nested()
    queue = _CompletionQueue(loop)
    queue.put(Completed(run_inside))  # type: ignore[arg-type]
    queue.put(Completed(lambda: done.append("behind")))  # type: ignore[arg-type]
    queue.wake()
    loop.ready.pop(0)()
    assert done == ["behind"]


@pytest.mark.parametrize("what", ["success", "failure", "wrong request", "closed pipe"])
def test_a_task_that_awaits_request_after_request_does_not_keep_the_loop_from_other_tasks(what: str, run: Run) -> None:
    """These requests complete on the thread of the loop, before the task awaits them."""

    def work(number: int) -> int:
        if number < 0:
            raise ValueError("below zero")
        return number

    each(work, "TestWorks", thread="concurrent", non_blocking=True)
    passes: list[int] = []

    async def other() -> None:
        while True:
            passes.append(len(passes))
            await asyncio.sleep(0)

    async def main() -> None:
        with hami.pipe("TestWorks") as pipe:
            if what == "closed pipe":
                pipe.close()
            data, error = {
                "success": ({"data": 1}, None),
                "failure": ({"data": -1}, ValueError),
                "wrong request": ({"data": 1, 2: 3}, hami.DataTypeError),
                "closed pipe": ({"data": 1}, hami.PipeClosed),
            }[what]
            task = asyncio.create_task(other())
            for _ in range(100_000):  # far more than fit between two passes
                if len(passes) == 5:
                    break
                with pytest.raises(error) if error else contextlib.nullcontext():
                    await pipe.acall(dict(data))  # type: ignore[arg-type]
            assert len(passes) == 5
            task.cancel()

    run(main())


async def _await(answer: Any) -> None:
    await answer

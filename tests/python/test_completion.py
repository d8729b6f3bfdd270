"""Threads of the core complete callbacks, tasks and events; what user code may do on these threads."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref
from typing import Any

import hami
import pytest
from running import TIMEOUT, backend, check_clean, gated, run_script


def test_a_callback_may_run_another_pipe_while_the_next_batch_waits() -> None:
    """The thread has already acquired the GIL for that batch, and no other batch may consume it."""
    script = """
        import threading
        import hami

        gate = threading.Event()

        @hami.register
        class Gated(hami.Backend):
            def forward(self, batch):
                gate.wait()
                for item in batch:
                    item["result"] = item["data"]

        @hami.register
        class Triples(hami.Backend):
            thread = "serialized"
            def forward(self, batch):
                for item in batch:
                    item["result"] = [item["data"]] * 3

        seen = []
        with hami.pipe({"backend": "Gated", "max": 1, "batching": "off"}) as pipe, hami.pipe("Triples") as other:
            for number in range(9):
                future = pipe.submit({"data": number})
                future.add_done_callback(lambda one: seen.append(other({"data": one.result()["result"]})["result"]))
            gate.set()
            pipe.close()
        print(seen == [[number] * 3 for number in range(9)])
    """
    check_clean(run_script(script), "True")


@pytest.mark.filterwarnings("ignore:these backends did not come back")
def test_a_callback_may_wait_for_a_task_whose_request_it_completes() -> None:
    """Its loop is woken at once, not after the batch of the callback is complete."""
    cls, other_cls = gated(), gated("TestOther")
    pipe, other = hami.pipe({"backend": "TestGated", "max": 2}), hami.pipe("TestOther")
    completed, seen = threading.Event(), []

    def close_other(_: Any) -> None:
        other.close(0)
        seen.append(completed.wait(TIMEOUT))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        futures = [pipe.submit({"data": 0})]
        await loop.run_in_executor(None, cls.gate.wait_for_arrival)
        futures += [pipe.submit({"data": number}) for number in (1, 2)]
        futures[1].add_done_callback(close_other)
        task = asyncio.create_task(other.acall({"data": 3}))
        await asyncio.sleep(0)
        await loop.run_in_executor(None, other_cls.gate.wait_for_arrival)
        cls.gate.open()
        with pytest.raises(hami.PipeClosed):
            await task
        other_cls.gate.open()
        completed.set()
        for future in futures:
            await asyncio.wrap_future(future)

    with pipe:
        asyncio.run(main())
    assert cls.seen == [[0], [1, 2]]
    assert seen == [True]


@pytest.mark.filterwarnings("ignore:these backends did not come back")
def test_a_loop_may_continue_in_another_thread() -> None:
    """Then the loop no longer runs on the thread that started the request."""
    cls = gated()
    pipe = hami.pipe("TestGated")
    loop = asyncio.new_event_loop()
    entered = threading.Event()

    async def call() -> None:
        with pytest.raises(hami.PipeClosed):
            await pipe.acall({"data": 1})
        cls.gate.open()

    task = loop.create_task(call())
    loop.run_until_complete(asyncio.sleep(0))
    cls.gate.wait_for_arrival()
    loop.call_soon(entered.set)
    thread = threading.Thread(target=loop.run_until_complete, args=(task,), daemon=True)
    thread.start()
    assert entered.wait(TIMEOUT)
    pipe.close(0)
    thread.join(TIMEOUT)
    assert not thread.is_alive()
    loop.close()


def test_a_loop_that_was_closed_before_its_results_arrived_is_freed() -> None:
    cls = gated()
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    def abandon(number: int) -> None:
        loop = asyncio.new_event_loop()
        loops.append(weakref.ref(loop))
        task = loop.create_task(pipe.acall({"data": number}))
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    async def call() -> None:
        await pipe.acall({"data": 9})

    with hami.pipe("TestGated") as pipe:
        for number in range(9):
            abandon(number)
        cls.gate.open()
        asyncio.run(call())  # removes closed loops
        gc.collect()
        assert [loop() for loop in loops] == [None] * 9


def test_reading_a_request_at_the_recursion_limit_raises_recursion_error() -> None:
    """The exception class of the core has an `__init__` in Python, for which no stack is left."""
    raised = set()

    def dive(item: Any) -> None:
        try:
            item[5]
        except (hami.DataTypeError, RecursionError) as error:
            raised.add(type(error))
        dive(item)

    def forward(batch: list[Any]) -> None:
        for item in batch:
            with contextlib.suppress(RecursionError):
                dive(item)
            item["result"] = 1

    backend(forward, "TestDives")
    with hami.pipe("TestDives") as pipe:
        pipe({"data": 1})
    assert raised == {hami.DataTypeError, RecursionError}


def test_the_interpreter_may_exit_while_a_thread_of_the_core_wakes_a_loop() -> None:
    """CPython before 3.14 then ends the thread of the core; the rest of the process must not be affected."""
    script = """
        import asyncio, atexit, os, select, sys, threading
        import hami

        gate, go = os.pipe()
        entered = threading.Event()

        class Loop(asyncio.SelectorEventLoop):
            def call_soon_threadsafe(self, *arguments, **named):
                entered.set()
                select.select([gate], [], [])
                return super().call_soon_threadsafe(*arguments, **named)

        @hami.register
        class Slow(hami.Backend):
            def forward(self, batch):
                opened.wait()
                for item in batch:
                    item["result"] = 1

        opened = threading.Event()
        pipe = hami.pipe("Slow")
        loop = Loop()
        task = loop.create_task(pipe.acall({"data": 1}))
        task._log_destroy_pending = False
        loop.run_until_complete(asyncio.sleep(0))
        opened.set()
        entered.wait()
        import warnings
        warnings.simplefilter("ignore")
        atexit.register(pipe.close, 0)

        class Last:
            def __del__(self, write=os.write, wait=select.select):
                write(go, b"x")
                wait([], [], [], 0.3)
        sys.last = Last()
    """
    check_clean(run_script(script))

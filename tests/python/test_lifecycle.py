"""The end of pipes: closed, forgotten or interrupted; test_end_of_program.py has the end of the interpreter."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hami
import pytest
from running import (
    PATIENCE,
    Gate,
    backend,
    check_clean,
    each,
    gated,
    run_script,
    slow,
    threads_end,
    threads_of_process,
)


def test_close_finishes_what_was_submitted() -> None:
    cls = gated()
    pipe = hami.pipe("TestGated")
    futures = [pipe.submit({"data": number}) for number in range(5)]
    cls.gate.wait_for_arrival()
    closer = threading.Thread(target=pipe.close)
    closer.start()
    cls.gate.open()
    closer.join(PATIENCE)
    assert [one.result(0)["result"] for one in futures] == [100, 101, 102, 103, 104]
    assert pipe.closed
    pipe.close()


def test_a_backend_that_does_not_come_back_is_abandoned_with_a_warning_that_names_it() -> None:
    cls = gated()
    pipe = hami.pipe("TestGated")
    running = pipe.submit({"data": 1})
    cls.gate.wait_for_arrival()
    waiting = pipe.submit({"data": 2})
    with pytest.warns(RuntimeWarning) as caught:
        pipe.close(timeout=0.01)
    assert [str(one.message) for one in caught] == [
        'these backends did not come back within 0.01 s and were abandoned: TestGated of node "default"'
    ]
    assert caught[0].filename == __file__
    for future in (running, waiting):
        with pytest.raises(hami.PipeClosed, match=r"^the pipe was closed"):
            future.result(0)
    cls.gate.open()
    assert cls.seen == [[1]]


def test_a_pipe_that_cannot_be_made_does_not_wait_for_ever_for_what_was_made_of_it() -> None:
    before = threads_of_process()
    go_on = threading.Event()
    closed: list[bool] = []

    class HeldUp(hami.Backend):
        def forward(self, batch: list[Any]) -> None: ...

        def close(self) -> None:
            closed.append(go_on.wait(PATIENCE))

    class Fails(hami.Backend):
        def init(self, options: Any) -> None:
            raise ValueError("no model")

        def forward(self, batch: list[Any]) -> None: ...

    hami.register("TestHeldUp")(HeldUp)
    hami.register("TestFails")(Fails)
    with pytest.raises(ValueError, match="no model") as raised:
        hami.pipe({"first": {"backend": "TestHeldUp"}, "second": {"backend": "TestFails"}})
    if sys.version_info >= (3, 11):
        assert raised.value.__notes__ == [
            'in init of TestFails, node "second", close of TestHeldUp of node "first", which did not return in time and was '
            "abandoned"
        ]
    assert closed == []
    go_on.set()
    assert threads_end(before)
    assert closed == [True]


def test_pipes_that_were_closed_or_forgotten_leave_no_thread() -> None:
    each(lambda number: number + 1, "TestAddOne")
    each(lambda number: number + 1, "TestAny", thread="serialized")
    before = threads_of_process()
    for number in range(1000):
        pipe = hami.pipe({"backend": "TestAddOne" if number % 2 else "TestAny"})
        request = {"data": number}
        assert (pipe(request) if number % 3 else pipe.submit(request).result())["result"] == number + 1
        if number % 4:
            pipe.close(timeout=0 if number % 5 else 10)
        del pipe
    gc.collect()
    assert threads_end(before)


def test_a_sub_interpreter_is_told_that_it_cannot_have_the_core() -> None:
    made = run_script(
        """
        import sys
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        script = f"import sys; sys.path = {sys.path!r}; import hami"
        try:
            raised = interpreters.run_string(interpreters.create(), script)
        except interpreters.RunFailedError as error:
            raised = error
        print(raised)
        """
    )
    assert "module hami._core does not support loading in subinterpreters" in made.stdout, made.stderr


def test_a_program_that_made_a_sub_interpreter_runs_pipes() -> None:
    """From then on CPython's PyGILState_Check says of every thread that it has the global lock."""
    script = """
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        pipe = hami.pipe("Slow")
        interpreters.destroy(interpreters.create())
        print(pipe({"data": 1})["result"])
    """
    check_clean(run_script(slow(0.001, script)), "done", "closed")


async def wait_in_a_task(pipe: hami.Pipe) -> None:
    await pipe.acall({"data": 1})


def wait_for_a_future(pipe: hami.Pipe) -> None:
    future = pipe.submit({"data": 1})  # stands in the traceback of what it raises
    future.result()


@pytest.mark.parametrize(
    "wait", [lambda pipe: asyncio.run(wait_in_a_task(pipe)), wait_for_a_future], ids=["acall", "submit"]
)
@pytest.mark.parametrize("thread", ["dedicated", "serialized"])
def test_an_error_goes_with_those_who_caught_it(wait: Callable[[hami.Pipe], None], thread: str) -> None:
    class Mistake(Exception):
        pass

    def fail(_: Any) -> None:
        raise Mistake

    each(fail, "TestFails", thread=thread)
    mistakes = []
    with hami.pipe("TestFails") as pipe:
        for _ in range(3):
            with pytest.raises(Mistake) as caught:
                wait(pipe)
            mistakes.append(weakref.ref(caught.value))
            del caught
    with hami.pipe("Identity") as other:
        other({"data": 1})  # takes with it what threads without the global lock could not let go
    gc.collect()
    assert [mistake() for mistake in mistakes] == [None] * 3


def test_two_pipes_do_not_know_each_others_names() -> None:
    with hami.pipe("Identity") as first, hami.pipe("Identity") as second:
        assert first({"data": 1}) == second({"data": 1})
    with hami.pipe("Identity") as again:
        assert again({"data": 1})["result"] == 1


def test_forgetting_a_pipe_closes_it() -> None:
    closed = threading.Event()

    class Closes(hami.Backend):
        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["result"] = 1

        def close(self) -> None:
            closed.set()

    hami.register("TestCloses")(Closes)
    pipe = hami.pipe("TestCloses")
    assert pipe({"data": 1})["result"] == 1
    del pipe
    gc.collect()
    assert closed.is_set()


def test_a_close_that_raises_does_not_stop_the_others() -> None:
    closed: list[int] = []

    class Fails(hami.Backend):
        def forward(self, batch: list[Any]) -> None: ...

        def close(self) -> None:
            closed.append(1)
            raise ValueError("in close")

    hami.register("TestFailsClose")(Fails)
    pipe = hami.pipe({"backend": "TestFailsClose", "instance_num": 2})
    seen: list[Any] = []
    hook, sys.unraisablehook = sys.unraisablehook, seen.append
    try:
        pipe.close()
    finally:
        sys.unraisablehook = hook
    assert closed == [1, 1]
    assert [str(one.exc_value) for one in seen] == ["in close", "in close"]


def test_what_the_handler_of_a_signal_raises_comes_out_of_the_call_that_waits() -> None:
    """A server that ends on SIGTERM does it by sys.exit in a handler."""

    def tell(batch: list[Any]) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        gate.enter()
        batch[0]["result"] = 1

    def handler(*_: object) -> None:
        sys.exit(7)

    gate = Gate()
    backend(tell, "TestTells")
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with hami.pipe("TestTells") as pipe:
            with pytest.raises(SystemExit) as raised:
                pipe({"data": 1})
            gate.open()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert raised.value.code == 7


def test_a_value_that_runs_code_when_it_goes_may_use_the_pipe() -> None:
    each(lambda thing: None, "TestNone")
    ran: list[Any] = []
    with hami.pipe("TestNone") as pipe, hami.pipe("Identity") as quick:

        class Calls:
            def __del__(self) -> None:
                ran.append(quick({"data": 1})["result"])

        for _ in range(50):
            pipe({"data": Calls()})
            quick({"data": Calls()})
            pipe.submit({"data": Calls()}, timeout=3600).result(PATIENCE)
        pipe({"data": 1})
        gc.collect()
    assert ran == [1] * 150


def test_many_threads_call_submit_cancel_and_close() -> None:
    def work(number: int) -> int:
        if number % 10 == 0:
            raise ValueError(number)
        return number + 1

    each(work, "TestWork", max=4)
    outcomes: list[str] = []
    pipe = hami.pipe({"backend": "TestWork", "instance_num": 2, "max_queue_size": 8})

    def call(seed: int) -> None:
        for number in range(200):
            try:
                if (number + seed) % 3:
                    assert pipe({"data": number})["result"] == number + 1
                else:
                    future = pipe.submit({"data": number}, timeout=None if number % 2 else 60)
                    if number % 4 == 0:
                        future.cancel()
                    assert future.result(PATIENCE)["result"] == number + 1
                outcomes.append("good")
            except (ValueError, hami.PipeClosed, Exception) as error:
                outcomes.append(type(error).__name__)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    threads[0].join(PATIENCE)
    pipe.close()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(outcomes) == 1200
    assert set(outcomes) <= {"good", "ValueError", "CancelledError", "PipeClosed"}


def test_many_threads_build_and_close_pipes() -> None:
    """In a process of its own: without the global lock CPython 3.13 crashed where two register for its end at once."""
    script = """
        import threading, hami
        def build():
            for _ in range(2000):
                hami.pipe("S[Identity,Identity]").close()
        threads = [threading.Thread(target=build) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print("built")
    """
    check_clean(run_script(script), "built")


def test_os_threads_have_names() -> None:
    each(lambda number: number + 1, "TestAddOne", thread="dedicated")
    with hami.pipe("TestAddOne") as pipe:
        pipe({"data": 1})  # a thread names itself when it begins
        names = []
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):  # one of an earlier test has just ended
                names.append((task / "comm").read_text().strip())
    assert "TestAddOne" in names


def test_a_deadline_is_a_moment_of_the_monotonic_clock() -> None:
    """`deadline`: absolute, `time.monotonic()` seconds."""
    cls = gated()
    with hami.pipe("TestGated") as pipe:
        with pytest.raises(hami.DeadlineExceeded):
            pipe({"data": 1, "deadline": time.monotonic() + 0.01})
        future = pipe.submit({"data": 2, "deadline": time.monotonic() + 3600})
        cls.gate.open()
        assert future.result(PATIENCE)["result"] == 102


@pytest.mark.parametrize(
    "config", [{"backend": "TestRefusing"}, {"backend": "S[TestRefusing,Identity]", "instance_num": 2}]
)
def test_what_failed_to_start_is_freed(config: dict[str, Any]) -> None:
    """Its error holds the frame of init, that the options, and those must not lead back to the error."""
    made: list[weakref.ref[hami.Backend]] = []

    class Refusing(hami.Backend):
        def init(self, options: Any) -> None:
            assert options["init_event"]
            made.append(weakref.ref(self))
            raise ValueError("no model")

        def forward(self, batch: list[Any]) -> None: ...

    hami.register("TestRefusing")(Refusing)
    for _ in range(3):
        with pytest.raises(ValueError, match="no model"):
            hami.pipe(config)
    gc.collect()
    assert made
    assert not any(backend() for backend in made)


@pytest.mark.parametrize("thread", ["dedicated", "serialized", "concurrent"])
def test_a_backend_may_close_its_own_pipe_when_it_is_closed(thread: str) -> None:
    closed = threading.Event()

    class Closes(hami.Backend):
        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["result"] = 1

        def close(self) -> None:
            pipe.close(None)
            closed.set()

    Closes.thread = thread
    hami.register("TestCloses")(Closes)
    pipe = hami.pipe("TestCloses")
    assert pipe({"data": 1})["result"] == 1
    closer = threading.Thread(target=pipe.close, args=(None,), daemon=True)
    closer.start()
    closer.join(PATIENCE)
    assert not closer.is_alive()
    assert closed.is_set()

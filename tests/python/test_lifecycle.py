"""The end of pipes: closed, dropped or interrupted. test_end_of_program.py covers the exit of the interpreter."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import re
import signal
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hami
import pytest
from running import (
    TIMEOUT,
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
    closer.join(TIMEOUT)
    assert [one.result(0)["result"] for one in futures] == [100, 101, 102, 103, 104]
    assert pipe.closed
    pipe.close()


def test_a_backend_that_does_not_return_is_abandoned_with_a_warning_that_names_it() -> None:
    cls = gated()
    pipe = hami.pipe("TestGated")
    running = pipe.submit({"data": 1})
    cls.gate.wait_for_arrival()
    waiting = pipe.submit({"data": 2})
    with pytest.warns(RuntimeWarning) as caught:
        pipe.close(timeout=0.01)
    (warning,) = (str(one.message) for one in caught)
    assert re.fullmatch(
        r'these backends did not return within [1-9].* s and were abandoned: TestGated of node "default"', warning
    )
    assert caught[0].filename == __file__
    for future in (running, waiting):
        with pytest.raises(hami.PipeClosed, match=r"^the pipe was closed"):
            future.result(0)
    cls.gate.open()
    assert cls.seen == [[1]]


def test_a_failed_build_does_not_wait_indefinitely_for_the_close_of_built_nodes() -> None:
    before = threads_of_process()
    may_continue = threading.Event()
    closed = threading.Event()

    class HeldUp(hami.Backend):
        def forward(self, batch: list[Any]) -> None: ...

        def close(self) -> None:
            if may_continue.wait(TIMEOUT):
                closed.set()

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
            'in init of TestFails, node "second", close of TestHeldUp of node "first", '
            "which did not return in time and was abandoned"
        ]
    assert not closed.is_set()
    may_continue.set()
    assert closed.wait(TIMEOUT)
    assert threads_end(before)


def test_closed_and_dropped_pipes_leave_no_threads() -> None:
    each(lambda number: number + 1, "TestAddOne")
    each(lambda number: number + 1, "TestSerialized", thread="serialized")
    before = threads_of_process()
    for number in range(1000):
        pipe = hami.pipe({"backend": "TestAddOne" if number % 2 else "TestSerialized"})
        request = {"data": number}
        assert (pipe(request) if number % 3 else pipe.submit(request).result())["result"] == number + 1
        if number % 4:
            pipe.close(timeout=0 if number % 5 else 10)
        del pipe
    gc.collect()
    assert threads_end(before)


def test_importing_the_core_in_a_sub_interpreter_is_an_error() -> None:
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


def test_pipes_work_after_the_program_created_a_sub_interpreter() -> None:
    """From then on, PyGILState_Check of CPython returns true for every thread."""
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
    future = pipe.submit({"data": 1})  # the traceback of the exception refers to this variable
    future.result()


@pytest.mark.parametrize(
    "wait", [lambda pipe: asyncio.run(wait_in_a_task(pipe)), wait_for_a_future], ids=["acall", "submit"]
)
@pytest.mark.parametrize("thread", ["dedicated", "serialized"])
def test_an_error_is_freed_when_its_catcher_drops_it(wait: Callable[[hami.Pipe], None], thread: str) -> None:
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
        other({"data": 1})  # frees objects that threads without the GIL could not release
    gc.collect()
    assert [mistake() for mistake in mistakes] == [None] * 3


def test_names_of_two_pipes_are_independent() -> None:
    with hami.pipe("Identity") as first, hami.pipe("Identity") as second:
        assert first({"data": 1}) == second({"data": 1})
    with hami.pipe("Identity") as again:
        assert again({"data": 1})["result"] == 1


def test_dropping_the_last_reference_closes_a_pipe() -> None:
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


def test_an_exception_of_a_signal_handler_is_raised_by_the_waiting_call() -> None:
    """A server may handle SIGTERM by calling sys.exit in a signal handler."""

    def raise_signal(batch: list[Any]) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        gate.enter()
        batch[0]["result"] = 1

    def handler(*_: object) -> None:
        sys.exit(7)

    gate = Gate()
    backend(raise_signal, "TestSignals")
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with hami.pipe("TestSignals") as pipe:
            with pytest.raises(SystemExit) as raised:
                pipe({"data": 1})
            gate.open()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert raised.value.code == 7


def test_a_destructor_of_a_value_may_call_a_pipe() -> None:
    each(lambda thing: None, "TestNone")
    ran: list[Any] = []
    with hami.pipe("TestNone") as pipe, hami.pipe("Identity") as other:

        class Calls:
            def __del__(self) -> None:
                ran.append(other({"data": 1})["result"])

        for _ in range(50):
            pipe({"data": Calls()})
            other({"data": Calls()})
            pipe.submit({"data": Calls()}, timeout=3600).result(TIMEOUT)
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
                    assert future.result(TIMEOUT)["result"] == number + 1
                outcomes.append("good")
            except (ValueError, hami.PipeClosed, Exception) as error:
                outcomes.append(type(error).__name__)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    threads[0].join(TIMEOUT)
    pipe.close()
    for thread in threads:
        thread.join(TIMEOUT)
    assert len(outcomes) == 1200
    assert set(outcomes) <= {"good", "ValueError", "CancelledError", "PipeClosed"}


def test_many_threads_build_and_close_pipes() -> None:
    """In a separate process: free-threaded CPython 3.13 crashed if two threads registered exit functions at once."""
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
        pipe({"data": 1})  # a thread sets its name when it starts
        names = []
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):  # a thread of an earlier test has just ended
                names.append((task / "comm").read_text().strip())
    assert "TestAddOne" in names


def test_a_deadline_is_an_absolute_time_of_the_monotonic_clock() -> None:
    cls = gated()
    with hami.pipe("TestGated") as pipe:
        with pytest.raises(hami.DeadlineExceeded):
            pipe({"data": 1, "deadline": time.monotonic() + 0.01})
        future = pipe.submit({"data": 2, "deadline": time.monotonic() + 3600})
        cls.gate.open()
        assert future.result(TIMEOUT)["result"] == 102


@pytest.mark.parametrize(
    "config", [{"backend": "TestRefusing"}, {"backend": "S[TestRefusing,Identity]", "instance_num": 2}]
)
def test_a_backend_that_failed_to_start_is_freed(config: dict[str, Any]) -> None:
    """The error refers to the frame of init and the frame to the options, which must not refer back to the error."""
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
def test_close_of_a_backend_may_close_its_own_pipe(thread: str) -> None:
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
    closer.join(TIMEOUT)
    assert not closer.is_alive()
    assert closed.is_set()


def test_a_pipe_opens_while_another_thread_imports_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "logging", types.ModuleType("logging"))  # as an import leaves it for a while
    with hami.pipe("Identity") as pipe:
        assert pipe({"data": 1})["result"] == 1

"""A generator `forward` ends with its request, for every way to call, and never keeps the process from running."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from typing import Any

import hami
import pytest
from running import TIMEOUT, run_script


class Watched:
    """How the endless generators of a test ran and ended."""

    def __init__(self) -> None:
        self.first = threading.Event()
        self.go_on = threading.Event()
        self.ended = threading.Event()
        self.runs = self.closed = 0
        self.threads: set[int] = set()


watched = Watched()


@pytest.fixture(autouse=True)
def _watch_again() -> None:
    global watched
    watched = Watched()


@hami.register
class GeneratorEndless(hami.Backend):
    """Delivers parts without end, and `data` for "one": a single part."""

    def forward(self, batch: list[hami.Request]) -> Any:
        mine = watched
        mine.runs += 1
        mine.threads.add(threading.get_ident())
        try:
            yield "part"
            if batch[0]["data"] == "one":
                return
            mine.first.set()
            if batch[0]["data"] == "wait":
                assert mine.go_on.wait(TIMEOUT)
            while True:
                yield "part"
        finally:
            mine.threads.add(threading.get_ident())
            mine.closed += 1
            mine.ended.set()


@hami.register
class GeneratorInC(hami.Backend):
    """Delivers parts without end and without one instruction of Python."""

    def forward(self, batch: list[hami.Request]) -> Any:
        try:
            if batch[0]["data"] == "one":
                return
            yield "part"
            watched.first.set()
            yield from iter(int, 1)
        finally:
            watched.ended.set()


@hami.register
class EmitsEndless(hami.Backend):
    """A plain forward that emits without end."""

    def forward(self, batch: list[hami.Request]) -> None:
        try:
            while batch[0]["data"] != "one":
                batch[0].emit("part")
                watched.first.set()
        finally:
            watched.ended.set()
        batch[0]["result"] = "one"


def until_one_has_begun(call: Callable[[float], object], error: type[Exception] = hami.DeadlineExceeded) -> None:
    """Make a call with longer and longer timeouts: on a busy machine, short ones pass before it begins."""
    for seconds in (0.05, 0.5, 5, 50):
        with pytest.raises(error):
            call(seconds)
        if watched.first.is_set() or watched.ended.is_set():
            return


def by_timeout(pipe: hami.Pipe) -> None:
    until_one_has_begun(lambda seconds: pipe({"data": 0}, timeout=seconds))


def by_timeout_of_a_list(pipe: hami.Pipe) -> None:
    until_one_has_begun(lambda seconds: pipe([{"data": 0}], timeout=seconds), hami.BatchError)


def by_cancel(pipe: hami.Pipe) -> None:
    future = pipe.submit({"data": 0})
    assert watched.first.wait(TIMEOUT)
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result()


def by_timeout_of_submit(pipe: hami.Pipe) -> None:
    until_one_has_begun(lambda seconds: pipe.submit({"data": 0}, timeout=seconds).result(TIMEOUT))


def by_closing_the_queue(pipe: hami.Pipe) -> None:
    queue = hami.Queue(4)
    future = pipe.submit({"data": 0, "parts": queue})
    queue.get(timeout=TIMEOUT)
    queue.close()
    with pytest.raises(CancelledError):
        future.result(TIMEOUT)


def by_dropping_the_stream(pipe: hami.Pipe) -> None:
    stream = pipe.stream({"data": 0})
    next(stream)
    del stream
    gc.collect()


def by_timeout_of_the_stream(pipe: hami.Pipe) -> None:
    until_one_has_begun(lambda seconds: list(pipe.stream({"data": 0}, timeout=seconds)))


def by_leaving_map(pipe: hami.Pipe) -> None:
    mapped = pipe.map([{"data": "one"}, {"data": 0}, {"data": 0}], concurrency=3)
    next(mapped)
    assert watched.first.wait(TIMEOUT)
    mapped.close()  # type: ignore[attr-defined]


def in_task(start: Callable[[hami.Pipe], Any]) -> Callable[[hami.Pipe], None]:
    def run(pipe: hami.Pipe) -> None:
        async def main() -> None:
            task = asyncio.ensure_future(start(pipe))
            await asyncio.to_thread(watched.first.wait, TIMEOUT)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())

    return run


async def take_all(pipe: hami.Pipe) -> None:
    async for _ in pipe.astream({"data": 0}):
        pass


LEAVES: dict[str, Callable[[hami.Pipe], None]] = {
    "timeout": by_timeout,
    "timeout of a list": by_timeout_of_a_list,
    "timeout of submit": by_timeout_of_submit,
    "cancel": by_cancel,
    "parts closed": by_closing_the_queue,
    "stream dropped": by_dropping_the_stream,
    "timeout of a stream": by_timeout_of_the_stream,
    "map closed": by_leaving_map,
    "task of acall cancelled": in_task(lambda pipe: pipe.acall({"data": 0})),
    "task of astream cancelled": in_task(take_all),
    "replaced": lambda pipe: leave_by_replace(pipe),
}


def leave_by_replace(pipe: hami.Pipe) -> None:
    future = pipe.submit({"data": 0})
    assert watched.first.wait(TIMEOUT)
    pipe.replace("GeneratorEndless", timeout=0)
    with pytest.raises(hami.PipeClosed):
        future.result(TIMEOUT)


@pytest.mark.parametrize("leave", LEAVES)
@pytest.mark.parametrize("name", ["GeneratorEndless", "GeneratorInC", "EmitsEndless", "S[Identity,GeneratorEndless]"])
def test_it_ends_when_its_caller_has_left(name: str, leave: str) -> None:
    """Its `finally` runs, and the only instance serves the next request."""
    with hami.pipe(name) as pipe:
        LEAVES[leave](pipe)
        assert watched.ended.wait(TIMEOUT)
        pipe({"data": "one"}, timeout=TIMEOUT)


def test_a_generator_that_reads_the_stream_of_another_pipe_closes_it_too() -> None:
    """The caller of the outer pipe leaves; the instances of both serve the next request."""
    with hami.pipe("GeneratorEndless") as inner:

        class Forwards(hami.Backend):
            def forward(self, batch: list[hami.Request]) -> Any:
                yield from inner.stream({"data": batch[0]["data"]})

        hami.register("GeneratorForwards")(Forwards)
        with hami.pipe("GeneratorForwards") as outer:
            until_one_has_begun(lambda seconds: outer({"data": 0}, timeout=seconds))
            assert watched.ended.wait(TIMEOUT)
            outer({"data": "one"}, timeout=TIMEOUT)
    assert watched.runs == watched.closed >= 2


def test_a_generator_that_already_runs_is_the_error_of_its_request() -> None:
    """Two requests got the same one."""

    class Same(hami.Backend):
        def init(self, options: Any) -> None:
            self.parts: Any = self.endless()

        def endless(self) -> Any:
            yield "part"
            while True:
                yield next(self.parts)

        def forward(self, batch: list[hami.Request]) -> Any:
            return self.parts

    hami.register("GeneratorSame")(Same)
    with hami.pipe("GeneratorSame") as pipe, pytest.raises(ValueError, match="generator already executing"):
        pipe({"data": 0}, timeout=TIMEOUT)


def test_a_generator_is_closed_on_the_thread_of_its_instance() -> None:
    """Once for each run."""
    with hami.pipe("GeneratorEndless") as pipe:
        for _ in range(3):
            with pytest.raises(hami.DeadlineExceeded):
                pipe({"data": 0}, timeout=0.01)
        pipe({"data": "one"})
    assert len(watched.threads) == 1
    assert watched.runs == watched.closed


def test_a_caller_that_leaves_between_two_parts_gets_no_further_part() -> None:
    """The generator waits meanwhile, and ends at its next part."""
    with hami.pipe("GeneratorEndless") as pipe:
        queue = hami.Queue(100)
        future = pipe.submit({"data": "wait", "parts": queue})
        assert watched.first.wait(TIMEOUT)
        assert future.cancel()
        watched.go_on.set()
        assert watched.ended.wait(TIMEOUT)
        assert list(queue) == ["part"]


def test_a_request_that_is_cancelled_in_the_queue_does_not_run() -> None:
    """The generator is never started."""
    with hami.pipe("GeneratorEndless") as pipe:
        running = pipe.submit({"data": "wait"})
        assert watched.first.wait(TIMEOUT)
        queued = pipe.submit({"data": 0})
        assert queued.cancel()
        assert running.cancel()
        watched.go_on.set()
        pipe({"data": "one"})
    assert watched.runs == 2


@pytest.mark.parametrize("error", [ValueError("in finally"), KeyboardInterrupt("in finally"), SystemExit(3)])
def test_an_exception_of_the_finally_block_is_reported_once(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request has its own error, and the instance goes on."""
    reported: list[BaseException | None] = []
    begun: list[int] = []
    monkeypatch.setattr("sys.unraisablehook", lambda each: reported.append(each.exc_value))

    class Fails(hami.Backend):
        def forward(self, batch: list[hami.Request]) -> Any:
            begun.extend([1] * batch[0]["data"])
            try:
                while batch[0]["data"]:
                    yield 1
            finally:
                if batch[0]["data"]:
                    raise error

    hami.register("GeneratorFailsInFinally")(Fails)
    with hami.pipe("GeneratorFailsInFinally") as pipe:
        while not begun:  # earlier requests expired before they started
            with pytest.raises(hami.DeadlineExceeded):
                pipe({"data": 1}, timeout=0.01)
        assert pipe({"data": 0})["result"] == []
    assert reported == [error] * len(begun)


def test_a_generator_that_ignores_its_close_does_not_keep_the_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is dropped after its next part."""
    reported: list[str] = []
    begun = threading.Event()
    monkeypatch.setattr("sys.unraisablehook", lambda each: reported.append(str(each.exc_value)))

    class Stubborn(hami.Backend):
        def forward(self, batch: list[hami.Request]) -> Any:
            if batch[0]["data"]:
                begun.set()
            while batch[0]["data"]:
                try:
                    yield 1
                except GeneratorExit:
                    yield 2

    hami.register("GeneratorStubborn")(Stubborn)
    with hami.pipe("GeneratorStubborn") as pipe:
        while not begun.is_set():  # earlier requests expired before they started
            with pytest.raises(hami.DeadlineExceeded):
                pipe({"data": 1}, timeout=0.01)
        assert pipe({"data": 0})["result"] == []
    assert set(reported) == {"generator ignored GeneratorExit"}


def test_emit_tells_a_batch_that_one_request_is_over_and_does_not_fail_it() -> None:
    """An exception would fail the neighbours, which cannot run again once they have delivered parts."""
    left, told = threading.Event(), []

    class Emits(hami.Backend):
        max = 2

        def forward(self, batch: list[hami.Request]) -> None:
            for item in batch:
                item.emit("first")
            assert left.wait(TIMEOUT)
            for item in batch:
                told.append((item["data"], item.emit("second")))
                item["result"] = item["data"]

    hami.register("EmitsToBatch")(Emits)
    with hami.pipe({"backend": "EmitsToBatch", "min": 2, "max": 2, "batching_timeout": "60s"}) as pipe:
        queues = [hami.Queue(10), hami.Queue(10)]
        leaves = pipe.submit({"data": "leaves", "parts": queues[0]})
        stays = pipe.submit({"data": "stays", "parts": queues[1]})
        queues[0].get(timeout=TIMEOUT)
        assert leaves.cancel()
        left.set()
        assert stays.result(TIMEOUT)["result"] == "stays"
        assert list(queues[1]) == ["first", "second"]
        assert sorted(told) == [("leaves", False), ("stays", True)]


def test_emit_raises_for_a_plain_request_that_is_over() -> None:
    """Also if its caller takes no parts."""
    raised: list[BaseException] = []
    left, done, started = threading.Event(), threading.Event(), threading.Event()

    class Emits(hami.Backend):
        def forward(self, batch: list[hami.Request]) -> None:
            started.set()
            assert left.wait(TIMEOUT)
            try:
                batch[0].emit("part")
            except BaseException as error:
                raised.append(error)
                raise
            finally:
                done.set()

    hami.register("EmitsToNobody")(Emits)
    with hami.pipe("EmitsToNobody") as pipe:
        future = pipe.submit({"data": 0})
        assert started.wait(TIMEOUT)
        assert future.cancel()
        left.set()
        assert done.wait(TIMEOUT)
    assert [type(error) for error in raised] == [CancelledError]


def test_parts_without_an_instruction_of_python_leave_time_for_other_threads_and_signals() -> None:
    """A handler runs on the main thread, and another thread runs, while `yield from iter(int, 1)` delivers."""
    done = run_script("""
        import signal, threading
        import hami

        class InC(hami.Backend):
            def forward(self, batch):
                started.set()
                yield from iter(int, 1)

        def interrupt():
            assert started.wait(60)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        for thread in ("dedicated", "serialized"):
            InC.thread = thread
            hami.register("InC")(InC)
            started = threading.Event()
            with hami.pipe("InC") as pipe:
                threading.Thread(target=interrupt).start()
                try:
                    pipe({"data": 1})
                except KeyboardInterrupt:
                    print(thread, "interrupted", flush=True)
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "dedicated interrupted\nserialized interrupted\n", "")


AT_EXIT = """
    import threading, time
    import hami
    from hami._runtime import at_exit

    at_exit.GRACE_PERIOD_S = 0.05

    @hami.register
    class Runs(hami.Backend):
        def forward(self, batch):
            started.set()
            while True:
                PART

    started = threading.Event()
    pipe = hami.pipe("Runs")
    START
    assert started.wait(60)
    print("end", flush=True)
"""
PARTS = {
    "python": "yield 1",
    "C": "yield from iter(int, 1)",
    "sleeps": "time.sleep(0.0001); yield 1",
    "long sleep": "yield time.sleep(1.5)",
    "ignores close": """
                try:
                    yield 1
                except GeneratorExit:
                    pass""",
    "no part": "time.sleep(0.0001)\n                if not started: yield",
}
STARTS = {
    "submit": 'future = pipe.submit({"data": 1})',
    "stream": 'stream = pipe.stream({"data": 1}); next(stream) if "yield" in "PART" else None',
    "thread": 'threading.Thread(target=lambda: pipe({"data": 1}), daemon=True).start()',
    "parts": 'queue = hami.Queue(2); future = pipe.submit({"data": 1, "parts": queue})',
}


def programs() -> Iterator[Any]:
    for part in PARTS:
        for start in STARTS:
            if not (start == "stream" and part == "no part"):  # its first part would never come
                yield pytest.param(part, start, id=f"{part}-{start}")


@pytest.mark.parametrize(("part", "start"), list(programs()))
def test_the_interpreter_exits_while_a_generator_runs(part: str, start: str) -> None:
    """With status 0, and without a crash in the thread of the backend."""
    start_line = STARTS[start].replace('if "yield" in "PART" else None', "")
    done = run_script(AT_EXIT.replace("PART", PARTS[part]).replace("START", start_line))
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
    assert "Fatal" not in done.stderr

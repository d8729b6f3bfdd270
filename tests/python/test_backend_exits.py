"""What a backend raises to steer its thread, loop or task is the error of its request, in every way of calling."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import hami
import pytest
from running import TIMEOUT, run_script


class OwnBase(BaseException):
    """As gevent.Timeout and GreenletExit: it does not derive from Exception."""


RAISED: dict[str, Callable[[], BaseException]] = {
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": lambda: SystemExit(3),
    "GeneratorExit": GeneratorExit,
    "OwnBase": OwnBase,
    "StopIteration": lambda: StopIteration("nothing left"),
    "StopAsyncIteration": StopAsyncIteration,
    "futures.CancelledError": CancelledError,
    "asyncio.CancelledError": asyncio.CancelledError,
}


@hami.register
class ExitsForward(hami.Backend):
    """Raises what `data` names, or returns it."""

    thread = "dedicated"

    def forward(self, batch: list[hami.Request]) -> None:
        for item in batch:
            if item["data"] in RAISED:
                raise RAISED[item["data"]]()
            item["result"] = item["data"]


@hami.register
class ExitsEmit(ExitsForward):
    """The same after a part."""

    def forward(self, batch: list[hami.Request]) -> None:
        batch[0].emit("part")
        super().forward(batch)


@hami.register
class ExitsFail(hami.Backend):
    """The same by item.fail."""

    def forward(self, batch: list[hami.Request]) -> None:
        for item in batch:
            if item["data"] in RAISED:
                item.fail(RAISED[item["data"]]())
            else:
                item["result"] = item["data"]


@hami.register
class ExitsGenerator(hami.Backend):
    """The same in a generator, where Python itself replaces StopIteration by RuntimeError."""

    def forward(self, batch: list[hami.Request]) -> Any:
        yield "part"
        if batch[0]["data"] in RAISED:
            raise RAISED[batch[0]["data"]]()


@hami.register
class ExitsChild(hami.Backend):
    """The same in a backend that it calls."""

    child_count = (1, 1)

    def forward(self, batch: list[hami.Request]) -> None:
        for item in batch:
            item["result"] = self.children[0]({"data": item["data"]})["result"]


def in_loop(make: Callable[[], Any]) -> None:
    async def main() -> None:
        await asyncio.wait_for(make(), TIMEOUT)

    asyncio.run(main())


async def take_all(parts: Any) -> None:
    async for _ in parts:
        pass


def with_event(pipe: hami.Pipe, data: str) -> None:
    event = hami.Event()
    pipe({"data": data, "event": event})
    assert event.wait(TIMEOUT)
    error = event.exception()
    if error is not None:
        raise error


def with_callback(pipe: hami.Pipe, data: str) -> None:
    done = threading.Event()
    future = pipe.submit({"data": data})
    future.add_done_callback(lambda _: done.set())
    assert done.wait(TIMEOUT)
    future.result()


def in_list(pipe: hami.Pipe, data: str) -> None:
    errors = pipe._core.call_many([{"data": data}], TIMEOUT)  # without BatchError around them
    if errors[0] is not None:
        raise errors[0]


def with_queue(pipe: hami.Pipe, data: str) -> None:
    queue = hami.Queue(10)
    future = pipe.submit({"data": data, "parts": queue})
    list(queue)
    future.result(TIMEOUT)


WAYS: dict[str, Callable[[hami.Pipe, str], Any]] = {
    "call": lambda pipe, data: pipe({"data": data}, timeout=TIMEOUT),
    "list": in_list,
    "submit": lambda pipe, data: pipe.submit({"data": data}).result(TIMEOUT),
    "callback": with_callback,
    "event": with_event,
    "map": lambda pipe, data: list(pipe.map([{"data": data}], timeout=TIMEOUT)),
    "stream": lambda pipe, data: list(pipe.stream({"data": data}, timeout=TIMEOUT)),
    "parts": with_queue,
    "acall": lambda pipe, data: in_loop(lambda: pipe.acall({"data": data})),
    "astream": lambda pipe, data: in_loop(lambda: take_all(pipe.astream({"data": data}))),
    "warmup": lambda pipe, data: pipe.warmup({"data": data}, n=1),
}


def cause_of(error: BaseException) -> str:
    """Return the class of the innermost exception."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__module__}.{type(error).__name__}"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("raised", RAISED)
@pytest.mark.parametrize("name", ["ExitsForward", "ExitsEmit", "ExitsFail", "S[Identity,ExitsForward]"])
def test_it_is_the_error_of_the_request(name: str, raised: str, way: str) -> None:
    """The caller gets BackendExit, and the pipe serves the next request."""
    with hami.pipe(name) as pipe:
        with pytest.raises(hami.BackendExit, match=f"^the backend raised {raised.split('.')[-1]}") as caught:
            WAYS[way](pipe, raised)
        expected = RAISED[raised]()
        assert cause_of(caught.value) == f"{type(expected).__module__}.{type(expected).__name__}"
        WAYS[way](pipe, "good")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("raised", RAISED)
@pytest.mark.parametrize("name", ["ExitsGenerator", "ExitsChild[ExitsForward]"])
def test_it_is_an_error_in_a_generator_and_in_a_child(name: str, raised: str, way: str) -> None:
    """Python makes a RuntimeError of StopIteration in a generator; all others are BackendExit."""
    with hami.pipe(name) as pipe:
        with pytest.raises((hami.BackendExit, RuntimeError)) as caught:
            WAYS[way](pipe, raised)
        expected = RAISED[raised]()
        assert cause_of(caught.value) == f"{type(expected).__module__}.{type(expected).__name__}"
        WAYS[way](pipe, "good")


@pytest.mark.parametrize("raised", RAISED)
def test_one_exit_does_not_fail_its_neighbours_in_a_generator_or_by_fail(raised: str) -> None:
    """The other requests of the batch have their results."""
    with hami.pipe({"backend": "ExitsFail", "max": 3, "min": 3, "batching_timeout": "60s"}) as pipe:
        requests: list[dict[str, Any]] = [{"data": 1}, {"data": raised}, {"data": 3}]
        with pytest.raises(hami.BatchError) as failed:
            pipe(requests)
        assert [(index, type(error)) for index, error in failed.value.errors] == [(1, hami.BackendExit)]
        assert [request.get("result") for request in requests] == [1, None, 3]


@pytest.mark.parametrize("raised", RAISED)
def test_it_is_the_error_of_the_construction(raised: str) -> None:
    """Of a pipe, and of a new definition; the pipe that it should replace goes on."""

    class Init(hami.Backend):
        def init(self, options: Any) -> None:
            raise RAISED[raised]()

        def forward(self, batch: list[hami.Request]) -> None:
            raise NotImplementedError

    hami.register("ExitsInit")(Init)
    with pytest.raises(hami.BackendExit, match="the backend raised "):
        hami.pipe("ExitsInit")
    with hami.pipe("Identity") as pipe:
        with pytest.raises(hami.BackendExit, match="the backend raised "):
            pipe.replace("ExitsInit")
        assert pipe({"data": 1})["result"] == 1


@pytest.mark.parametrize("raised", RAISED)
def test_it_is_reported_once_in_close(raised: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipe is closed nevertheless."""
    reported: list[BaseException | None] = []
    monkeypatch.setattr("sys.unraisablehook", lambda each: reported.append(each.exc_value))

    class Close(hami.Backend):
        def forward(self, batch: list[hami.Request]) -> None:
            batch[0]["result"] = 1

        def close(self) -> None:
            raise RAISED[raised]()

    hami.register("ExitsClose")(Close)
    pipe = hami.pipe("ExitsClose")
    assert pipe({"data": 1})["result"] == 1
    pipe.close()
    assert pipe.closed
    assert [type(error) for error in reported] == [type(RAISED[raised]())]


@pytest.mark.parametrize("raised", RAISED)
def test_a_done_callback_that_raises_is_reported_and_the_next_one_runs(
    raised: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a future and of an event; the thread of the pipe serves the next request."""
    monkeypatch.setattr("sys.unraisablehook", lambda _: None)

    def fail(_: Any) -> None:
        raise RAISED[raised]()

    with hami.pipe("ExitsGate") as pipe:
        for _ in range(2):
            gate = ExitsGate.gate = threading.Event()
            future, event, done = pipe.submit({"data": 1}), hami.Event(), hami.Event(2)
            pipe({"data": 2, "event": event})
            for source in (future, event):
                source.add_done_callback(fail)
                source.add_done_callback(lambda _, done=done: done.notify())
            gate.set()
            assert done.wait(TIMEOUT)
            assert future.result(TIMEOUT)["result"] == 1
            assert event.value() == 2


@hami.register
class ExitsGate(hami.Backend):
    """Waits for the test."""

    gate = threading.Event()

    def forward(self, batch: list[hami.Request]) -> None:
        assert ExitsGate.gate.wait(TIMEOUT)
        for item in batch:
            item["result"] = item["data"]


@pytest.mark.parametrize("method", ["__str__", "add_note"])
@pytest.mark.parametrize("way", WAYS)
def test_an_error_with_a_method_that_exits_reaches_its_caller(way: str, method: str) -> None:
    """Of the class of the exception itself, which the core asks for its text and gives a note."""

    def exits(*_: Any) -> Any:
        raise SystemExit(3)

    error = type("ExitsInMethod", (Exception,), {method: exits})

    class Raises(hami.Backend):
        thread = "dedicated"

        def forward(self, batch: list[hami.Request]) -> None:
            if batch[0]["data"] != "good":
                raise error
            batch[0]["result"] = 1

    hami.register("ExitsInMethodOfError")(Raises)
    with hami.pipe("ExitsInMethodOfError") as pipe:
        with pytest.raises(error):
            WAYS[way](pipe, "bad")
        WAYS[way](pipe, "good")


def test_a_list_with_an_error_without_text_raises_batch_error() -> None:
    """Its summary names the class alone."""

    class NoText(Exception):
        def __str__(self) -> str:
            raise AttributeError("given")

    class Raises(hami.Backend):
        def forward(self, batch: list[hami.Request]) -> None:
            raise NoText

    hami.register("ExitsNoText")(Raises)
    with (
        hami.pipe("ExitsNoText") as pipe,
        pytest.raises(hami.BatchError, match=r"^1 request failed at index 0: NoText"),
    ):
        pipe([{"data": 1}])


def test_ctrl_c_on_the_thread_of_the_caller_stays_ctrl_c() -> None:
    """A backend without a thread of its own runs on the main thread, where Ctrl-C interrupts it."""
    done = run_script("""
        import signal
        import hami

        @hami.register
        class Inline(hami.Backend):
            thread = "serialized"

            def forward(self, batch):
                signal.raise_signal(signal.SIGINT)
                batch[0]["result"] = 1

        with hami.pipe("Inline") as pipe:
            try:
                pipe({"data": 1})
            except KeyboardInterrupt:
                print("interrupted")
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


class Unreadable(Exception):
    """None of its attributes can be read, not even its class."""

    def __getattribute__(self, name: str) -> Any:
        raise LookupError(name)


# From CPython 3.13 on, hasattr of the C API also prints the exception of an attribute; pybind11 asks for __notes__.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("way", WAYS)
def test_an_exception_without_readable_attributes_ends_its_request(way: str) -> None:
    """An event loop that gets it would never learn that its task has ended."""

    class Raises(hami.Backend):
        def forward(self, batch: list[hami.Request]) -> None:
            raise Unreadable

    hami.register("ExitsUnreadable")(Raises)
    with hami.pipe("ExitsUnreadable") as pipe, pytest.raises(hami.BackendExit) as caught:
        WAYS[way](pipe, "")
    assert type(caught.value.__cause__) is Unreadable


class Nameless(type):
    """A metaclass whose classes do not say what they are called."""

    answer: Any = LookupError("no name")

    def __getattribute__(cls, name: str) -> Any:
        if name not in ("__name__", "__qualname__", "__module__"):
            return super().__getattribute__(name)
        if isinstance(Nameless.answer, BaseException):
            raise Nameless.answer
        return Nameless.answer


@pytest.mark.parametrize("answer", [LookupError("no name"), SystemExit(3), "\ud800", 7], ids=repr)
@pytest.mark.parametrize("base", [Exception, SystemExit])
def test_an_exception_whose_class_has_no_name_is_not_a_lack_of_memory(
    base: type[BaseException], answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The core reads the name without code of the metaclass, also of a returned object."""
    error = Nameless("NamelessError", (base,), {})

    class Raises(hami.Backend):
        def forward(self, batch: list[hami.Request]) -> Any:
            if batch[0]["data"] == "returns":
                return error()
            raise error("given")

    hami.register("ExitsNameless")(Raises)
    monkeypatch.setattr(Nameless, "answer", answer)
    with hami.pipe("ExitsNameless") as pipe:
        with pytest.raises(error if base is Exception else hami.BackendExit, match="given"):
            pipe({"data": "raises"})
        with pytest.raises(hami.NoResult, match="forward returned NamelessError and set no"):
            pipe({"data": "returns"})


def test_the_text_of_an_exception_that_is_not_unicode_is_shown_with_escapes() -> None:
    """As of an error with the name of a file whose bytes are not UTF-8."""

    class Raises(hami.Backend):
        def forward(self, batch: list[hami.Request]) -> None:
            raise SystemExit("no file \udcff.jpg")

    hami.register("ExitsNotUnicode")(Raises)
    with hami.pipe("ExitsNotUnicode") as pipe, pytest.raises(hami.BackendExit, match=r"no file \\udcff\.jpg"):
        pipe({"data": 1})

"""Partial results: item.emit, generators, pipe.stream, pipe.astream, and the key `parts`."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError
from typing import Any, ClassVar

import hami
import pytest

LONG_S = 30.0  # limit for waits that end at once unless something is wrong


@hami.register
class PartsCount(hami.Backend):
    """Yields the numbers below `data`."""

    def forward(self, batch: list[hami.Request]) -> Any:
        yield from range(batch[0]["data"])


@hami.register
class PartsReturn(hami.Backend):
    """Yields one part and returns another value."""

    def forward(self, batch: list[hami.Request]) -> Any:
        yield "part"
        return "whole"


@hami.register
class PartsEmit(hami.Backend):
    """Emits the numbers below `data` of each request."""

    max = 8

    def forward(self, batch: list[hami.Request]) -> None:
        for item in batch:
            heard = [item.emit(number) for number in range(item["data"])]
            item["result"] = all(heard)


@hami.register
class PartsEndless(hami.Backend):
    """Yields without end; notes how it ended."""

    ended: ClassVar[threading.Event] = threading.Event()
    errors: ClassVar[list[BaseException]] = []

    def forward(self, batch: list[hami.Request]) -> Any:
        try:
            while True:
                yield "again"
        except BaseException as error:
            self.errors.append(error)
            raise
        finally:
            self.ended.set()


@hami.register
class PartsThenFail(hami.Backend):
    """Emits one part of each request, and then raises for the whole batch."""

    max = 4
    runs: ClassVar[list[int]] = []

    def forward(self, batch: list[hami.Request]) -> None:
        self.runs.append(len(batch))
        for item in batch:
            item.emit("before")
        raise ValueError("broken")


def test_parts_arrive_in_order_and_the_request_has_its_result() -> None:
    """The dict is that of a call after the last part."""
    with hami.pipe("S[PartsEmit,Identity]") as pipe:
        request = {"data": 40, "other": "kept"}
        assert list(pipe.stream(request)) == list(range(40))
        assert request == {"data": 40, "other": "kept", "result": True}


def test_a_generator_delivers_parts_and_a_plain_call_gets_their_list() -> None:
    """The same backend serves both kinds of callers."""
    with hami.pipe("PartsCount") as pipe:
        assert list(pipe.stream({"data": 3})) == [0, 1, 2]
        assert pipe({"data": 3})["result"] == [0, 1, 2]
        assert list(pipe.stream({"data": 0})) == []
        request: dict[str, Any] = {"data": 2}
        list(pipe.stream(request))
        assert request["result"] is None


def test_what_a_generator_returns_is_the_result() -> None:
    """Of a call and of a stream."""
    with hami.pipe("PartsReturn") as pipe:
        assert pipe({"data": 0})["result"] == "whole"
        request: dict[str, Any] = {"data": 0}
        assert list(pipe.stream(request)) == ["part"]
        assert request["result"] == "whole"


def test_nobody_listens_to_a_plain_call() -> None:
    """The parts are dropped, and `emit` says so."""
    with hami.pipe("PartsEmit") as pipe:
        assert pipe({"data": 2})["result"] is False


def test_parts_travel_through_nodes_and_branches() -> None:
    """Each node of a graph, and each branch, delivers to the same caller."""
    nodes = {
        "first": {"backend": "PartsEmit", "next": "left,right"},
        "left": {"backend": "S[Identity,PartsSay]", "next": "last"},
        "right": {"backend": "PartsSay", "next": "last"},
        "last": {"backend": "Identity", "map": "left[result:data], right[result:other]"},
    }
    with hami.pipe(nodes) as pipe:
        parts = list(pipe.stream({"data": 2}))
    assert parts[:2] == [0, 1]
    assert sorted(parts[2:]) == ["said", "said"]


@hami.register
class PartsSay(hami.Backend):
    """Emits one word."""

    def forward(self, batch: list[hami.Request]) -> None:
        for item in batch:
            item.emit("said")
            item["result"] = item["data"]


def test_leaving_the_loop_cancels_the_request() -> None:
    """The generator of the backend ends with its `finally`, and the pipe serves the next request."""
    PartsEndless.ended.clear()
    PartsEndless.errors.clear()
    with hami.pipe("PartsEndless") as pipe:
        for part in pipe.stream({"data": 0}):
            assert part == "again"
            break
        assert PartsEndless.ended.wait(LONG_S)
        assert [type(error) for error in PartsEndless.errors] == [GeneratorExit]
        assert next(pipe.stream({"data": 0})) == "again"


def test_emit_raises_when_the_caller_has_left() -> None:
    """A backend that emits in a loop ends with CancelledError."""
    seen: list[BaseException] = []
    done = threading.Event()

    class Emitting(hami.Backend):
        def forward(self, batch: list[hami.Request]) -> None:
            try:
                while True:
                    batch[0].emit(1)
            except BaseException as error:
                seen.append(error)
                raise
            finally:
                done.set()

    hami.register("PartsEmitting")(Emitting)
    with hami.pipe("PartsEmitting") as pipe:
        stream = pipe.stream({"data": 0})
        next(stream)
        stream.close()  # type: ignore[attr-defined]
        assert done.wait(LONG_S)
        assert isinstance(seen[0], CancelledError)


def test_a_slow_caller_holds_the_backend_back() -> None:
    """At most `buffer` parts wait; `emit` waits for the caller."""
    made: list[int] = []

    class Counted(hami.Backend):
        def forward(self, batch: list[hami.Request]) -> Any:
            for number in range(200):
                made.append(number)
                yield number

    hami.register("PartsCounted")(Counted)
    with hami.pipe("PartsCounted") as pipe:
        for taken, _ in enumerate(pipe.stream({"data": 0}, buffer=2), start=1):
            assert len(made) <= taken + 2 * 2 + 1  # in the buffer, taken together, and waiting in emit
    assert len(made) == 200


def test_the_deadline_ends_a_stream() -> None:
    """Parts that arrived are delivered, then DeadlineExceeded is raised."""
    with hami.pipe("PartsEndless") as pipe:
        taken: set[Any] = set()
        for seconds in (0.05, 0.5, 5, 50):  # on a busy machine, the deadline may pass before the first part
            with pytest.raises(hami.DeadlineExceeded):
                taken.update(pipe.stream({"data": 0}, timeout=seconds))
            if taken:
                break
        assert taken == {"again"}


def test_a_request_that_delivered_parts_does_not_run_again() -> None:
    """A batch that fails as a whole runs again request by request, except for these."""
    PartsThenFail.runs.clear()
    with hami.pipe({"backend": "PartsThenFail", "min": 2, "max": 2, "batching_timeout": "10s"}) as pipe:
        outcomes: list[Any] = []

        def listen() -> None:
            try:
                outcomes.append(list(pipe.stream({"data": 0})))
            except ValueError as error:
                outcomes.append(str(error).splitlines()[0])

        threads = [threading.Thread(target=listen) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG_S)
    assert outcomes == ["broken", "broken"]
    assert PartsThenFail.runs == [2]


def test_an_error_comes_after_the_parts() -> None:
    """Those that were delivered are not lost."""
    with hami.pipe("PartsThenFail") as pipe:
        stream = pipe.stream({"data": 0})
        assert next(stream) == "before"
        with pytest.raises(ValueError, match="broken"):
            next(stream)


def test_closing_the_pipe_ends_a_stream() -> None:
    """The caller gets PipeClosed, not a loop without end."""
    pipe = hami.pipe("PartsEndless")
    stream = pipe.stream({"data": 0})
    next(stream)
    pipe.close(timeout=0)
    with pytest.raises(hami.PipeClosed):
        for _ in stream:
            pass


def test_a_queue_under_the_key_parts() -> None:
    """Works with every way of starting a request; the queue is closed when the request is complete."""
    with hami.pipe("PartsCount") as pipe:
        queue = hami.Queue(100)
        request = pipe.submit({"data": 3, "parts": queue}).result(LONG_S)
        assert list(queue) == [0, 1, 2]
        assert queue.closed
        assert request["result"] is None
        with pytest.raises(hami.RequestError, match=r"the queue under the key \"parts\" is closed"):
            pipe({"data": 1, "parts": queue})
        assert pipe({"data": 1, "parts": "a value like any other"})["result"] == [0]


def test_a_generator_has_batches_of_one() -> None:
    """A greater max is an error of the configuration."""
    with hami.pipe({"backend": "PartsCount", "instance_num": 2}) as pipe:
        assert pipe([{"data": 1}, {"data": 2}])[1]["result"] == [0, 1]

    class Many(hami.Backend):
        max = 4

        def forward(self, batch: list[hami.Request]) -> Any:
            yield from batch

    hami.register("PartsMany")(Many)
    with pytest.raises(hami.ConfigError, match="is a generator, which runs one request at a time, but its max is 4"):
        hami.pipe("PartsMany")


def test_wrong_arguments() -> None:
    """Only a dict can be streamed, and the buffer holds at least one part."""
    with hami.pipe("Identity") as pipe:
        with pytest.raises(hami.DataTypeError, match="stream takes one dict"):
            pipe.stream([{"data": 1}])  # type: ignore[arg-type]
        with pytest.raises(hami.DataTypeError, match="astream takes one dict"):
            pipe.astream("page")  # type: ignore[arg-type]
        with pytest.raises(hami.ConfigError, match='max of queue "parts" is 0'):
            next(pipe.stream({"data": 1}, buffer=0))


def test_astream_in_many_tasks() -> None:
    """Each task gets its own parts in order."""

    async def take(pipe: hami.Pipe, count: int) -> list[int]:
        return [part async for part in pipe.astream({"data": count})]

    async def main() -> list[list[int]]:
        with hami.pipe({"backend": "PartsCount", "instance_num": 4}) as pipe:
            return await asyncio.gather(*(take(pipe, count) for count in range(30)))

    assert asyncio.run(main()) == [list(range(count)) for count in range(30)]


def test_astream_is_cancelled_with_its_task() -> None:
    """The backend ends, and the pipe serves the next request."""
    PartsEndless.ended.clear()

    async def main() -> None:
        with hami.pipe("PartsEndless") as pipe:
            started = asyncio.Event()

            async def take() -> None:
                async for _ in pipe.astream({"data": 0}):
                    started.set()

            task = asyncio.create_task(take())
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(PartsEndless.ended.wait, LONG_S)

    asyncio.run(main())


def test_astream_raises_after_the_parts() -> None:
    """As stream does."""

    async def main() -> None:
        with hami.pipe("PartsThenFail") as pipe:
            stream = pipe.astream({"data": 0})
            assert await stream.__anext__() == "before"
            with pytest.raises(ValueError, match="broken"):
                await stream.__anext__()

    asyncio.run(main())

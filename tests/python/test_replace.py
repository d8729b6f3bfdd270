"""`pipe.replace`: another pipeline takes over while requests run."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, ClassVar

import hami
import pytest

LONG_S = 30.0  # limit for waits that end at once unless something is wrong


@hami.register
class ReplaceVersion(hami.Backend):
    """Answers with its version; counts the instances that exist."""

    version: int = 0
    alive: ClassVar[set[int]] = set()

    def init(self, options: hami.types.DictView) -> None:
        self.alive.add(id(self))

    def forward(self, batch: list[hami.Request]) -> None:
        for item in batch:
            item["result"] = self.version

    def close(self) -> None:
        self.alive.discard(id(self))


@hami.register
class ReplaceWaits(hami.Backend):
    """Waits for an event of the test."""

    started: ClassVar[threading.Event] = threading.Event()
    go_on: ClassVar[threading.Event] = threading.Event()

    def forward(self, batch: list[hami.Request]) -> None:
        self.started.set()
        assert self.go_on.wait(LONG_S)
        for item in batch:
            item["result"] = "waited"


def test_no_request_is_lost_while_pipes_are_replaced() -> None:
    """Threads, futures and tasks call the pipe while it is replaced fifty times; each request has an answer."""
    ReplaceVersion.alive.clear()
    ended = threading.Event()
    answers: list[list[int]] = [[] for _ in range(9)]
    with hami.pipe("ReplaceVersion") as pipe:

        def call(mine: list[int]) -> None:
            while not ended.is_set():
                mine.append(pipe({"data": 0})["result"])

        def submit(mine: list[int]) -> None:
            while not ended.is_set():
                futures = [pipe.submit({"data": 0}) for _ in range(8)]
                mine.extend(future.result(LONG_S)["result"] for future in futures)

        def tasks(mine: list[int]) -> None:
            async def main() -> None:
                while not ended.is_set():
                    requests = await asyncio.gather(*(pipe.acall({"data": 0}) for _ in range(8)))
                    mine.extend(request["result"] for request in requests)

            asyncio.run(main())

        kinds = (call, submit, tasks)
        errors: list[BaseException] = []

        def run(number: int) -> None:
            try:
                kinds[number % 3](answers[number])
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(9)]
        for thread in threads:
            thread.start()
        for version in range(1, 51):
            pipe.replace(f"ReplaceVersion(version={version})")
            assert pipe({"data": 0})["result"] == version
            assert len(ReplaceVersion.alive) == 1
        ended.set()
        for thread in threads:
            thread.join(LONG_S)
    assert errors == []
    for mine in answers[0::3]:  # of a thread that calls, one after another: never an older version again
        assert mine == sorted(mine)
    assert ReplaceVersion.alive == set()


def test_requests_that_have_started_end_in_the_old_pipeline() -> None:
    """`replace` waits for them, and new requests do not."""
    ReplaceWaits.started.clear()
    ReplaceWaits.go_on.clear()
    with hami.pipe("ReplaceWaits") as pipe:
        waiting = pipe.submit({"data": 0})
        assert ReplaceWaits.started.wait(LONG_S)
        replaced = threading.Thread(target=pipe.replace, args=("ReplaceVersion(version=7)",))
        replaced.start()
        while pipe.stats()["default"].submitted:  # those of the old pipeline
            pass
        assert pipe({"data": 0})["result"] == 7
        assert not waiting.done()
        ReplaceWaits.go_on.set()
        assert waiting.result(LONG_S)["result"] == "waited"
        replaced.join(LONG_S)


def test_the_time_limit_for_the_old_requests() -> None:
    """After it, they fail with PipeClosed; the new pipeline is not affected."""
    ReplaceWaits.started.clear()
    ReplaceWaits.go_on.clear()
    with hami.pipe("ReplaceWaits") as pipe:
        waiting = pipe.submit({"data": 0})
        assert ReplaceWaits.started.wait(LONG_S)
        threading.Thread(target=lambda: (waiting.exception(LONG_S), ReplaceWaits.go_on.set())).start()
        pipe.replace("ReplaceVersion(version=1)", timeout=0.01)
        assert isinstance(waiting.exception(LONG_S), hami.PipeClosed)
        assert pipe({"data": 0})["result"] == 1


@pytest.mark.parametrize(
    "source", ["S[ReplaceVersion", "NoSuchBackend", {"backend": "ReplaceVersion", "version": "many"}]
)
def test_a_pipeline_that_cannot_be_built_changes_nothing(source: Any) -> None:
    """The old one goes on."""
    with hami.pipe("ReplaceVersion(version=3)") as pipe:
        with pytest.raises(hami.Error):
            pipe.replace(source)
        assert pipe({"data": 0})["result"] == 3
        assert not pipe.closed


def test_a_closed_pipe_cannot_be_replaced() -> None:
    """It stays closed."""
    pipe = hami.pipe("Identity")
    pipe.close()
    with pytest.raises(hami.PipeClosed):
        pipe.replace("Identity")
    assert pipe.closed


def test_closing_closes_the_new_pipeline() -> None:
    """And leaves nothing running."""
    ReplaceVersion.alive.clear()
    pipe = hami.pipe("ReplaceVersion")
    pipe.replace("ReplaceVersion(version=1)")
    pipe.close()
    assert pipe.closed
    assert ReplaceVersion.alive == set()
    with pytest.raises(hami.PipeClosed):
        pipe({"data": 0})

"""`memory_limit`: the bytes of the requests that wait at a node."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import hami
import pytest

LONG_S = 30.0  # limit for waits that end at once unless something is wrong


@hami.register
class MemoryGate(hami.Backend):
    """Runs its first request until the test lets it go on."""

    started: ClassVar[threading.Event] = threading.Event()
    go_on: ClassVar[threading.Event] = threading.Event()

    def forward(self, batch: list[hami.Request]) -> None:
        self.started.set()
        assert self.go_on.wait(LONG_S)
        for item in batch:
            item["result"] = 0


def gated(**keys: Any) -> hami.Pipe:
    """Return a pipe whose only instance is busy."""
    MemoryGate.started.clear()
    MemoryGate.go_on.clear()
    pipe = hami.pipe({"backend": "MemoryGate", **keys})
    pipe.submit({"data": 0})
    assert MemoryGate.started.wait(LONG_S)
    return pipe


@pytest.mark.parametrize("on_full", ["block", "reject", "drop_oldest"])
def test_what_does_not_fit_is_rejected_and_the_rest_runs(on_full: str) -> None:
    """At once, with any on_full; when the queue is empty again, requests fit again."""
    with gated(memory_limit="10KiB", on_full=on_full) as pipe:
        fits = [pipe.submit({"data": bytes(4000)}) for _ in range(2)]
        with pytest.raises(hami.QueueFull) as raised:
            pipe.submit({"data": bytes(4000)}).result(LONG_S)
        assert str(raised.value).splitlines()[0] == (
            'node "default" has requests with 7.9 KiB queued, and this one has 3.9 KiB; its memory_limit is 10.0 KiB: '
            "wait for outstanding requests, or raise memory_limit"
        )
        small = pipe.submit({"data": b"small"})
        stats = pipe.stats()["default"]
        assert 8000 < stats.queued_bytes < 10240
        assert (stats.rejected, stats.waiting, stats.running) == (1, 3, 1)
        MemoryGate.go_on.set()
        for future in [*fits, small]:
            future.result(LONG_S)
        assert pipe({"data": bytes(4000)})["result"] == 0
        assert pipe.stats()["default"].queued_bytes == 0


@pytest.mark.parametrize(
    ("data", "bytes_"),
    [
        (b"x" * 5000, 5000),
        ("x" * 5000, 5000),
        (["x" * 2500, {"key": b"y" * 2500}], 5000),
        (memoryview(bytes(5000)), 0),
        (object(), 0),
        (7, 0),
        (None, 0),
    ],
)
def test_what_counts(data: Any, bytes_: int) -> None:
    """Texts, bytes and tensors, also nested; other values count a little."""
    with gated(memory_limit="1MiB") as pipe:
        pipe.submit({"data": data})
        counted = pipe.stats()["default"].queued_bytes
        MemoryGate.go_on.set()
    assert bytes_ < counted < bytes_ + 200 or (isinstance(data, memoryview) and counted in range(5200))


def test_arrays_count() -> None:
    """Without a copy of their memory."""
    numpy = pytest.importorskip("numpy")
    with gated(memory_limit="1MiB") as pipe:
        pipe.submit({"data": numpy.zeros((100, 100), "float32")})
        assert 40_000 <= pipe.stats()["default"].queued_bytes < 40_200
        with pytest.raises(hami.QueueFull):
            pipe.submit({"data": numpy.zeros(1 << 20, "uint8")}).result(LONG_S)
        MemoryGate.go_on.set()


def test_a_request_larger_than_the_limit_is_not_asked_to_wait() -> None:
    """It would never fit."""
    with gated(memory_limit="1KiB") as pipe:
        with pytest.raises(hami.QueueFull) as raised:
            pipe.submit({"data": bytes(2048)}).result(LONG_S)
        assert str(raised.value).splitlines()[0] == (
            'this request has 2.0 KiB, more than the memory_limit of node "default", 1.0 KiB: '
            "send less in one request, or raise memory_limit"
        )
        MemoryGate.go_on.set()


def test_cancelled_requests_free_their_memory() -> None:
    """The next one fits."""
    with gated(memory_limit="10KiB") as pipe:
        cancelled = pipe.submit({"data": bytes(9000)})
        assert cancelled.cancel()
        MemoryGate.go_on.set()
        assert pipe.submit({"data": bytes(9000)}).result(LONG_S)["result"] == 0


@pytest.mark.parametrize("limit", ["0", "-1", "many"])
def test_wrong_limits(limit: str) -> None:
    """They are errors of the configuration."""
    with pytest.raises(hami.ConfigError, match="memory_limit"):
        hami.pipe({"backend": "Identity", "memory_limit": limit})

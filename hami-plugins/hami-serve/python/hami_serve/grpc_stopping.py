"""Ends a server of gRPC so that each call and each request of a stream has its answer, or an error with a reason."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

LAST_CALLS_S = 2.0  # for calls to come that were sent before the server says that it stops
QUIET_S = 0.3  # without a new call, or a new request of a stream: all have come
GOAWAY_S = 0.02  # for this message to be written before the answers


class OpenStream(Protocol):
    """A stream, which the client may leave open though it sends no more requests."""

    begun: int  # requests that have come

    @property
    def is_idle(self) -> bool: ...

    def stop(self) -> None:
        """End the stream, and its requests that run."""


class LastCalls:
    """Loses no call that clients have sent before they see that the server stops.

    gRPC cancels the calls that come after `stop`, and those that wait to be accepted. So the server first accepts what
    comes, and holds the answers: the clients that wait for them send nothing else. Then it says that it stops (GOAWAY),
    and sends the answers. A stream goes on until its client sends no more requests, and ends when it is idle.
    """

    def __init__(self) -> None:
        self._begun = 0
        self._running: set[asyncio.Task[object]] = set()
        self._streams: set[OpenStream] = set()
        self._released = asyncio.Event()
        self._released.set()
        self.over = False  # the time of all calls is over: those that run are cancelled

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count a call, which is cancelled if it does not end in time."""
        task = asyncio.current_task()
        assert task is not None
        self._begun += 1
        self._running.add(task)
        try:
            yield
        finally:
            self._running.discard(task)

    @contextmanager
    def streaming(self, stream: OpenStream) -> Iterator[None]:
        """Know a stream, which is stopped when it is idle, or does not end in time."""
        self._streams.add(stream)
        try:
            yield
        finally:
            self._streams.discard(stream)

    async def before_answer(self) -> None:
        await self._released.wait()

    async def collect(self, limit: float) -> None:
        """Hold answers until no new calls come."""
        self._released.clear()
        loop = asyncio.get_running_loop()
        until, seen = loop.time() + limit, -1
        while seen != self._begun and loop.time() < until:
            seen = self._begun
            await asyncio.sleep(QUIET_S)

    def release(self) -> None:
        self._released.set()

    async def end(self, stopped: asyncio.Task[None], until: float) -> None:
        """End streams that are idle, until the server has stopped; at a moment of the loop's time, end all that run."""
        loop = asyncio.get_running_loop()
        while not stopped.done() and loop.time() < until:
            idle = {stream: stream.begun for stream in self._streams if stream.is_idle}
            await asyncio.wait({stopped}, timeout=min(QUIET_S, until - loop.time()))
            for stream in idle.keys() & self._streams:
                if stream.is_idle and stream.begun == idle[stream]:
                    stream.stop()
        if not stopped.done():
            self.over = True
            for stream in list(self._streams):
                stream.stop()
            for task in list(self._running):
                task.cancel()

"""A call of gRPC that Python answers for the native door."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import grpc
import grpc.aio

from hami_serve.budget import Budget
from hami_serve.errors import BadRequest
from hami_serve.http_body import expand, off_loop

EOF = grpc.aio.EOF  # pyright: ignore[reportAttributeAccessIssue]


class Passes(Protocol):
    """What passes the messages of calls to the native door."""

    budget: Budget
    max_body: int

    def ask(self, number: int) -> None: ...

    def write(self, number: int, data: bytes) -> None: ...

    def finish(self, number: int, status: int, details: str) -> None: ...


class GrpcCall:
    """A call that Python answers: the context of its method, as that of grpc.aio."""

    def __init__(self, door: Passes, number: int, given: dict[str, Any]) -> None:
        self.method: str = given["method"]
        self.lease = door.budget.lease()
        self.task: asyncio.Task[None] | None = None
        self.serialize: Callable[[Any], bytes] | None = None
        self.deserialize: Callable[[bytes], Any] | None = None
        self._door = door
        self._number = number
        self._encoding: str = given.get("encoding", "")
        self._metadata = tuple(given.get("metadata", {}).items())
        left = given.get("left")
        self._deadline = None if left is None else time.monotonic() + left
        self._messages: asyncio.Queue[Any] = asyncio.Queue()  # of at most one, and the end
        self._asked = True  # for the first message
        self._unsent = 0  # answers
        self._sent = asyncio.Event()
        self._finished = False

    def time_remaining(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata

    async def read(self) -> Any:
        """Return the next message, or EOF; a message that cannot be read is the exception that says why."""
        if not self._asked:
            self._door.ask(self._number)
        given = await self._messages.get()
        if given is EOF:
            self._messages.put_nowait(EOF)
            return EOF
        self._asked = False
        data, compressed = given
        if compressed:
            try:
                data = bytes(await off_loop(expand, data, self._encoding, self._door.max_body, self.lease))
            except BadRequest as error:
                return error.with_traceback(None)
        return data if self.deserialize is None else self.deserialize(data)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        message = await self.read()
        if message is EOF:
            raise StopAsyncIteration
        return message

    async def write(self, message: Any) -> None:
        """Send an answer, and wait until the client takes it."""
        self.send(message if self.serialize is None else self.serialize(message))
        while self._unsent:
            self._sent.clear()
            await self._sent.wait()

    def send(self, data: bytes) -> None:
        self._unsent += 1
        self._door.write(self._number, data)

    async def abort(self, code: grpc.StatusCode, details: str = "") -> None:
        self.finish(code, details)
        raise grpc.aio.AbortError("the call has its status")

    def finish(self, code: grpc.StatusCode, details: str = "") -> None:
        """End the call, unless it has ended."""
        if self._finished:
            return
        self._finished = True
        self._door.finish(self._number, code.value[0], details)

    # ---- what the native door says ----

    def received(self, data: bytes, compressed: bool) -> None:
        self._messages.put_nowait((data, compressed))

    def ended(self) -> None:
        self._messages.put_nowait(EOF)

    def written(self) -> None:
        self._unsent -= 1
        self._sent.set()

    def gone(self) -> None:
        if self.task is not None:
            self.task.cancel()

"""One request over HTTP and its answer, as an application of ASGI sees them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Protocol

from hami_serve.failures import log, log_fault
from hami_serve.http_body import EXTENSION, REJECTED, Scope

PIECE = 1 << 20  # bytes of a body that are collected before the application sees them
WRITTEN = 1 << 20  # bytes of an answer that are given to the connection at once
KEPT = 1 << 16  # bytes of an unwanted body that are read so that the connection can be used again
STATUS_LINES = {status: b"HTTP/1.1 %d %s\r\n" % (status, status.phrase.encode()) for status in HTTPStatus}


class Output(Protocol):
    """Where the bytes of an answer go."""

    def write(self, data: bytes | memoryview) -> None: ...


class Connection(Protocol):
    """What an exchange needs of the connection that it came on."""

    stopping: bool  # the server ends
    body_left: int  # bytes of the body that have not come yet

    @property
    def transport(self) -> Output: ...
    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]: ...
    @property
    def is_read(self) -> bool: ...
    @property
    def body_has_begun(self) -> bool: ...
    def read_body(self) -> None: ...
    async def drain(self) -> None: ...
    def abort(self) -> None: ...
    def end_exchange(self, exchange: Exchange) -> None: ...


class Exchange:
    """A request and its answer. The connection reads the body only when the application asks for it."""

    def __init__(self, connection: Connection, scope: Scope, *, keep_alive: bool, expects_continue: bool) -> None:
        self._connection = connection
        self._scope = scope
        self._event = asyncio.Event()  # a body has come, the client has left, or the answer is complete
        self._expects_continue = expects_continue
        self._parts: list[bytes] = []
        self._size = 0
        self._last_taken = False
        self._chunked: bool | None = None
        self._left = 0  # bytes that the answer must still have
        self.keep_alive = keep_alive
        self.more_body = True
        self.disconnected = False
        self.started = False
        self.complete = False
        scope["extensions"] = {EXTENSION: {}}

    async def run(self, app: Any) -> None:
        """Run the application; a request that it leaves without an answer has the status 500."""
        try:
            await app(self._scope, self.receive, self.send)
            reason: BaseException | str = "the application has not completed its answer"
        except asyncio.CancelledError:
            reason = "the server stopped before the client had read its answer"
        except BaseException as error:
            reason = error
        if self.complete or self.disconnected:
            return
        if isinstance(reason, str):
            log.error("a request failed: %s", reason)
        else:
            log_fault("a request failed", reason)
        if self.started:
            self._connection.abort()
            return
        head = [(b"content-type", b"application/json"), (b"connection", b"close")]
        await self.send({"type": "http.response.start", "status": 500, "headers": head})
        await self.send({"type": "http.response.body", "body": b'{"error": "the server failed"}'})

    # ---- the request ----

    def add(self, body: bytes) -> bool:
        """Add a part of the body; return whether the application should take it before more is read."""
        self._parts.append(body)
        self._size += len(body)
        if self._size < PIECE:
            return False
        self._event.set()
        return True

    def end_body(self, body: memoryview | None) -> None:
        """End the body; a large one is in memory of its own."""
        if body is not None:
            self._scope["extensions"][EXTENSION]["body"] = body
        self.more_body = False
        self._event.set()

    def reject(self, status: int) -> None:
        """End the request, which is not complete: the server has answered it."""
        self._scope["extensions"][EXTENSION][REJECTED] = status
        self.disconnect()

    def disconnect(self) -> None:
        self.disconnected = True
        self._event.set()

    async def receive(self) -> dict[str, Any]:
        while not self.disconnected and not self.complete:
            if not self._last_taken and (not self.more_body or self._size >= PIECE):
                body, self._parts, self._size = b"".join(self._parts), [], 0
                self._last_taken = not self.more_body
                return {"type": "http.request", "body": body, "more_body": self.more_body}
            if self.more_body:
                if self._expects_continue:
                    self._expects_continue = False
                    if not self._connection.body_has_begun:
                        self._connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                self._connection.read_body()
            self._event.clear()
            await self._event.wait()
        return {"type": "http.disconnect"}

    # ---- the answer ----

    async def send(self, message: Mapping[str, Any]) -> None:
        await self._connection.drain()
        if self.disconnected:
            return
        if not self.started:
            self._start(message)
            return
        if self.complete:
            raise RuntimeError(f"{message['type']} after the end of the answer")
        body, more = message.get("body", b""), message.get("more_body", False)
        if self._scope["method"] == "HEAD":
            self._left = 0
        elif self._chunked:
            end = b"\r\n" if more else b"\r\n0\r\n\r\n"
            if len(body) > WRITTEN:
                self._connection.transport.write(b"%x\r\n" % len(body))
                await self._write(body)
                self._connection.transport.write(end)
            else:
                self._connection.transport.write(b"%x\r\n%b%b" % (len(body), body, end) if body else end[2:])
        else:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError("the body of an answer has another length than its head says")
            await self._write(body)
        if not more:
            self.complete = True
            self._event.set()
            try:
                await self._connection.drain()  # its memory counts as that of the request until it is sent
            finally:
                self._connection.end_exchange(self)

    async def _write(self, body: bytes | memoryview) -> None:
        """Write a part of the body, a large one in pieces, without copies."""
        while len(body) > WRITTEN:
            self._connection.transport.write(memoryview(body)[:WRITTEN])
            body = memoryview(body)[WRITTEN:]
            await self._connection.drain()
        self._connection.transport.write(body)

    def _start(self, message: Mapping[str, Any]) -> None:
        headers: Sequence[tuple[bytes, bytes]] = [*self._connection.default_headers, *message.get("headers", ())]
        status = HTTPStatus(message["status"]) if message["status"] in STATUS_LINES else None
        lines = [STATUS_LINES[status] if status else b"HTTP/1.1 %d \r\n" % message["status"]]
        if self.more_body and (self._expects_continue or self._connection.body_left > KEPT):
            self.keep_alive = False  # the rest of the body is not read as another request
        if self._connection.stopping and not self.more_body and self._connection.is_read:
            self.keep_alive = False
        for given, value in headers:
            name = given.lower()
            if b"\n" in value or b"\r" in value or b"\n" in name or b"\r" in name:
                raise RuntimeError("a header of an answer has a line break")
            if name == b"content-length" and self._chunked is None:
                self._left, self._chunked = int(value), False
            elif name == b"transfer-encoding" and value.lower() == b"chunked":
                self._left, self._chunked = 0, True
            elif name == b"connection":
                self.keep_alive = self.keep_alive and b"close" not in value.lower()
                continue
            lines += (name, b": ", value, b"\r\n")
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        if self._chunked is None and self._scope["method"] != "HEAD" and message["status"] not in (204, 304):
            self._chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        self.started, self._expects_continue = True, False
        self._connection.transport.write(b"".join(lines))


def answer_of(status: int, text: str) -> bytes:
    """Return the bytes of an answer with which the server ends a connection."""
    body = json.dumps({"error": text}).encode()
    head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
    return STATUS_LINES[HTTPStatus(status)] + head + body

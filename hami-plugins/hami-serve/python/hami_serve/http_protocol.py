"""uvicorn's HTTP protocol, with fewer steps for a request, and limits for clients that send slowly or too much.

uvicorn writes the head and the body of an answer separately. Each write of asyncio is a system call, and over loopback
it wakes the client, which then waits for the rest. uvicorn wakes the application for each part of a body, stops reading
above 64 KiB until the application runs, and waits for the head of a request indefinitely.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

IDLE_S = 75.0  # for the first byte of a connection, and between its requests
HEAD_S = 30.0  # for the head of a request
BODY_S = 60.0  # for the next part of a body
MAX_HEAD = 1 << 16  # bytes
PIECE = 4 << 20  # bytes of a body that are collected before the application sees them
JOINED = 1 << 16  # bytes; above that, a copy costs more than a system call


class JoiningTransport:
    """Joins the writes of one pass of the loop, up to a size. Everything else goes to the transport.

    Without the limit, a task that writes without pause would never see that the client reads slowly.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)
        self._size += len(data)
        if self._size > JOINED:
            self._flush()

    def _flush(self) -> None:
        if self._parts:
            parts, self._parts = self._parts, []
            size, self._size = self._size, 0
            if len(parts) > 1 and size <= JOINED:
                parts = [b"".join(parts)]
            for part in parts:
                self._transport.write(part)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Protocol(HttpToolsProtocol):
    """A connection.

    A body reaches the application in one piece, unless it is large, and an answer leaves in one write. A client that
    keeps the server waiting for a request loses its connection: `close_if_overdue` is called from time to time.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline: float | None = None  # of loop.time(), for the client to send more; None: it may be idle
        self._in_head = False
        self._head_size = 0
        self._parts: list[bytes] = []  # of the body
        self._size = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(JoiningTransport(transport, self.loop))  # type: ignore[arg-type]
        self._deadline = self.loop.time() + IDLE_S

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:
            self._head_size += len(data)
            if self._head_size > MAX_HEAD:
                self._reject(431, f"the head of the request has more than {MAX_HEAD} bytes")

    def on_message_begin(self) -> None:
        self._in_head, self._head_size = True, 0
        self._deadline = self.loop.time() + HEAD_S
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._deadline = self.loop.time() + BODY_S
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self.cycle.response_complete:  # an error; the rest is not read
            return
        self._deadline = self.loop.time() + BODY_S
        self._parts.append(body)
        self._size += len(body)
        if self._size > PIECE:
            self._pass_on()
            self.flow.pause_reading()  # until the application has taken it
            self.cycle.message_event.set()

    def on_message_complete(self) -> None:
        self._deadline = None
        self._pass_on()
        super().on_message_complete()

    def _pass_on(self) -> None:
        """Give the application what has arrived. As `bytes`, it is not copied when the application takes it."""
        if self.cycle.body:
            self._parts.insert(0, bytes(self.cycle.body))
        self.cycle.body = b"".join(self._parts)  # type: ignore[assignment]
        self._parts.clear()
        self._size = 0

    def close_if_overdue(self, now: float) -> None:
        """End the connection if the client should have sent more by now."""
        if self._deadline is None or now < self._deadline or self.flow.read_paused or self.transport.is_closing():
            return
        if self.cycle is None and not self._in_head:  # it has never sent anything
            self.transport.close()
        else:
            self._reject(408, f"the request did not continue for {HEAD_S if self._in_head else BODY_S:g} s")

    def _reject(self, status: int, text: str) -> None:
        """Answer a request that is not complete, and close the connection."""
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            body = json.dumps({"error": text}).encode()
            head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
            self.transport.write(STATUS_LINE[status] + head.encode() + body)
        self.transport.close()

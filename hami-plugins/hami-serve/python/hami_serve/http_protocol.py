"""uvicorn's HTTP protocol, with fewer steps for a request, and limits for clients that send slowly or too much.

uvicorn writes the head and the body of an answer separately. Each write of asyncio is a system call, and over loopback
it wakes the client, which then waits for the rest. uvicorn wakes the application for each part of a body, stops reading
above 64 KiB until the application runs, copies a body four times on its way to the application, and waits for the head
of a request indefinitely.
"""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import httptools
import numpy as np
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from hami_serve.http_body import EXTENSION
from hami_serve.http_tensors import HEADER_LENGTH, JOINED

IDLE_S = 75.0  # for the first byte of a connection, and between its requests
HEAD_S = 30.0  # for the head of a request
BODY_S = 60.0  # for the next part of a body
MAX_HEAD = 1 << 16  # bytes
RECEIVED = 1 << 16  # bytes that the parser gets at once
DIRECT = 32 << 20  # bytes of a body that is read to its place; the address space is taken before a client sends it
ALIGNMENT = 64  # bytes; of the first tensor of a body, as vector instructions want it
PIECE = 4 << 20  # bytes of another body that are collected before the application sees them


class _Received(threading.local):
    """The memory that the connections of a thread read into, one after the other."""

    def __init__(self) -> None:
        self.memory = memoryview(bytearray(RECEIVED))


_received = _Received()


class JoiningTransport:
    """Joins the writes of one pass of the loop, up to a size. Everything else goes to the transport.

    Without the limit, a task that writes without pause would never see that the client reads slowly.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes | memoryview] = []
        self._size = 0

    def write(self, data: bytes | memoryview) -> None:
        size = len(data)
        if self._size + size > JOINED:
            self._flush()
        if size > JOINED:
            self._transport.write(data)
            return
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)
        self._size += size

    def _flush(self) -> None:
        if self._parts:
            parts, self._parts, self._size = self._parts, [], 0
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Protocol(HttpToolsProtocol, asyncio.BufferedProtocol):
    """A connection.

    A body reaches the application in one piece, unless it is very large, and a small answer leaves in one write. A
    client that keeps the server waiting for a request loses its connection: `close_if_overdue` is called from time to
    time.

    The part of a large body that comes after the first packet does not pass the parser: the socket writes it to the
    memory where its tensors stay.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline: float | None = None  # of loop.time(), for the client to send more; None: it may be idle
        self._in_head = False
        self._body_begins = False
        self._head_size = 0
        self._parts: list[bytes] = []  # of the body
        self._size = 0
        self._body: memoryview | None = None  # of a body that is read to its place
        self._rest: memoryview | None = None  # the part of it that has not come yet
        self._extension: dict[object, Any] = {}  # what the application gets of the present request

    def connection_made(self, transport: Any) -> None:
        super().connection_made(JoiningTransport(transport, self.loop))  # type: ignore[arg-type]
        self._deadline = self.loop.time() + IDLE_S

    def get_buffer(self, sizehint: int) -> memoryview:
        return _received.memory if self._rest is None else self._rest

    def buffer_updated(self, nbytes: int) -> None:
        if self._rest is None:
            self.data_received(_received.memory[:nbytes])
            return
        self._deadline = self.loop.time() + BODY_S
        self._rest = self._rest[nbytes:]
        if not self._rest:
            self._rest = None
            self.on_message_complete()
            self.parser = httptools.HttpRequestParser(self)  # the old one waits for the rest of the body
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does

    def data_received(self, data: bytes | memoryview) -> None:
        super().data_received(data)  # type: ignore[arg-type]
        if self._in_head:
            self._head_size += len(data)
            if self._head_size > MAX_HEAD:
                self._reject(431, f"the head of the request has more than {MAX_HEAD} bytes")
        elif self._body_begins:
            self._body_begins = False
            self._read_directly()

    def on_message_begin(self) -> None:
        self._in_head, self._head_size = True, 0
        self._deadline = self.loop.time() + HEAD_S
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head, self._body_begins = False, True
        self._deadline = self.loop.time() + BODY_S
        super().on_headers_complete()
        self._extension = {}
        self.cycle.scope["extensions"] = {EXTENSION: self._extension}

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

    def _read_directly(self) -> None:
        """Let the socket write the rest of a large body behind what has come of it."""
        headers = dict(self.headers)
        length = headers.get(b"content-length", b"0")  # a number, which the parser has checked
        if b"transfer-encoding" in headers or not RECEIVED < int(length) <= DIRECT:
            return
        given = headers.get(HEADER_LENGTH.encode(), b"")
        before = int(given) if given.isdigit() and len(given) <= len(length) else 0
        memory = np.empty(int(length) + ALIGNMENT, np.uint8)
        start = -(memory.ctypes.data + before) % ALIGNMENT
        self._body = memory.data[start : start + int(length)]
        self._body[: self._size] = b"".join(self._parts)
        self._rest = self._body[self._size :]
        self._parts.clear()
        self._size = 0

    def on_message_complete(self) -> None:
        self._deadline = self.loop.time() + IDLE_S if self.cycle.response_complete else None
        self._body_begins = False
        if self._body is None:
            self._pass_on()
        else:
            self._extension["body"] = self._body
            self._body = None
        super().on_message_complete()

    def _pass_on(self) -> None:
        """Give the application what has arrived. As `bytes`, it is not copied when the application takes it."""
        if self.cycle.body:
            self._parts.insert(0, bytes(self.cycle.body))
        self.cycle.body = b"".join(self._parts)  # type: ignore[assignment]
        self._parts.clear()
        self._size = 0

    def on_response_complete(self) -> None:
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self._deadline = self.loop.time() + IDLE_S  # without a timer for each request, as uvicorn has

    def close_if_overdue(self, now: float) -> None:
        """End the connection if the client should have sent more by now."""
        if self._deadline is None or now < self._deadline or self.flow.read_paused or self.transport.is_closing():
            return
        if not self._in_head and (self.cycle is None or self.cycle.response_complete):  # it sends no request
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

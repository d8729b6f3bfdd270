"""A connection over HTTP/1.1: it reads one request at a time, and no more of it than the application asks for.

    idle ──> head ──> body ──> answer ──> idle ──> closing
                        └───────> rest ─────┘

The parser of httptools sees heads, chunks, and small bodies. The rest of a large body does not pass the parser: the
socket writes it to the memory where its tensors stay. What a client sends before its answer is complete is held up to
a limit, and read after the answer. The `rest` of a body that the application does not want is dropped.

A connection that is `closing` has sent its end, and drops what still comes. The kernel would reset a connection that
is closed with unread data, and the client could lose the answer by that.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import threading
import urllib.parse
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import httptools
import numpy as np
from starlette.types import ASGIApp

from hami_serve.http_exchange import Exchange, answer_of
from hami_serve.http_tensors import HEADER_LENGTH, JOINED
from hami_serve.http_times import Times
from hami_serve.metrics import answers

if TYPE_CHECKING:
    from hami_serve.native_door import NativeDoor

MIN_RATE = 1 << 14  # bytes per second that a body must come with
MIN_TAKEN = 1 << 16  # bytes of an answer that a client must take within a time
MAX_HEAD = 1 << 16  # bytes of a head; of trailers
MAX_LINE = 1 << 12  # bytes of the line before a chunk: its size and its extensions
CHUNK_LINE = re.compile(rb"([0-9a-fA-F]+)[^\n]*\n")
RECEIVED = 1 << 16  # bytes that are read at once, and that are held for the next request
DIRECT = 32 << 20  # bytes of a body that is read to its place
ALIGNMENT = 64  # bytes; of the first tensor of a body, as vector instructions want it
END = b"\n\r\n"  # of a head, and of the trailers of a body in chunks
UNTIL_END = 1 << 62  # bytes of a body in chunks, whose length is not known


class Stage(Enum):
    """What a connection reads."""

    IDLE = "idle"
    HEAD = "head"
    BODY = "body"
    ANSWER = "answer"
    REST = "rest"
    CLOSING = "closing"


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
        self.written = 0  # bytes

    def write(self, data: bytes | memoryview) -> None:
        size = len(data)
        self.written += size
        if self._size + size > JOINED:
            self.flush()
        if size > JOINED:
            self._transport.write(data)
            return
        if not self._parts:
            self._loop.call_soon(self.flush)
        self._parts.append(data)
        self._size += size

    def flush(self) -> None:
        if self._parts:
            parts, self._parts, self._size = self._parts, [], 0
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    @property
    def is_held(self) -> bool:
        """Whether something waits to be joined with more."""
        return bool(self._parts)

    def write_eof(self) -> None:
        self.flush()
        self._transport.write_eof()

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


@dataclass
class Shared:
    """What all connections of a server share."""

    app: ASGIApp
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)  # of every answer
    connections: set[Protocol] = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)  # of the application


def _address(given: Any) -> tuple[str, int] | None:
    """Return an address as ASGI has it; that of a Unix socket is None."""
    return (str(given[0]), int(given[1])) if isinstance(given, tuple) else None


class Protocol(asyncio.BufferedProtocol):
    """A connection of a server. `close_if_overdue` is called from time to time."""

    def __init__(
        self,
        shared: Shared,
        *,
        times: Times | None = None,
        native: NativeDoor | None = None,
        received: bytes = b"",
        hops: int = 0,
    ) -> None:
        """Make a connection. `native`: the door that it came from `hops` times, with what it has `received` already."""
        self._times = times or Times()
        self._shared = shared
        self.loop = asyncio.get_running_loop()
        self.transport: JoiningTransport = None  # type: ignore[assignment]
        self._stage = Stage.IDLE
        self._parser: httptools.HttpRequestParser = self._new_parser()
        self._native = native
        self._hops = hops
        self._stays = True  # this door answers the next request
        self._held = received  # and not read yet
        self._last = b""  # bytes before `_held` that the end of a head may begin with
        self._scanned = 0  # bytes of a head, or of trailers
        self._chunk_left = 0  # bytes of a chunk, and of the end of its line, that have not come yet
        self._line = b""  # the begin of a line before a chunk
        self._in_trailers = False  # the last chunk has come
        self._deadline: float | None = self.loop.time() + self._times.idle  # for the client to send more; None: none
        self._paused = False  # reading
        self._ended = False  # the client sends no more
        self.stopping = False  # the server ends
        self._writable = asyncio.Event()
        self._writable.set()
        self._taken, self._take_until = 0, 0.0  # bytes of answers that the client has taken, and the next check
        self._scope: dict[str, Any] = {}
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._in_head = False  # the parser is in a head: other headers are trailers, which are dropped
        self._upgrade = False
        self._exchange: Exchange | None = None
        self._wanted = False  # the application has asked for the body
        self._full = False  # the application has a part of the body to take
        self._body_begun, self._body_size = 0.0, 0
        self._body: memoryview | None = None  # of a body that is read to its place
        self._rest: memoryview | None = None  # the part of it that has not come yet
        self.body_left = 0  # bytes of the body that have not come yet

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        return self._shared.headers

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)  # such data is not read
        return parser

    # ---- the transport ----

    def connection_made(self, transport: Any) -> None:
        self._shared.connections.add(self)
        self.transport = JoiningTransport(transport, self.loop)
        self._server, self._client = (_address(transport.get_extra_info(each)) for each in ("sockname", "peername"))
        self._scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        if self._held:
            self.loop.call_soon(self._read)

    def connection_lost(self, exc: Exception | None) -> None:
        self._shared.connections.discard(self)
        self._held = b""
        self._body = self._rest = None
        self._writable.set()
        if self._exchange is not None:
            self._exchange.disconnect()

    def eof_received(self) -> bool:
        """Return whether the connection stays: a client that sends no more may still wait for answers."""
        self._ended = True
        self.transport.flush()  # an answer that waits to be joined: without this connection it would be lost
        if self._scheme == "https" or self._stage is Stage.CLOSING or not (self._held or self._stage is Stage.ANSWER):
            self._close()
            return False
        self._expect_answer()
        return True

    def _expect_answer(self) -> None:
        """End the connection if the answer does not begin soon: a client that has left looks like one that waits."""
        if exchange := self._exchange:
            self.loop.call_later(self._times.half_closed, self._end_unless_begun, exchange)

    def _end_unless_begun(self, exchange: Exchange) -> None:
        if exchange is self._exchange and not exchange.started:
            self._close()

    def get_buffer(self, sizehint: int) -> memoryview:
        return _received.memory if self._rest is None else self._rest

    def buffer_updated(self, nbytes: int) -> None:
        if self._stage is Stage.CLOSING:
            return
        if self._rest is None:
            data = bytes(_received.memory[:nbytes])
            self._held = self._held + data if self._held else data
            self._read()
            return
        self._deadline = self.loop.time() + self._times.body
        self.body_left -= nbytes
        self._body_size += nbytes
        self._rest = self._rest[nbytes:]
        if not self._rest:
            self._rest = None
            self._parser = self._new_parser()  # the old one waits for the rest of the body
            self.on_message_complete()

    def pause_writing(self) -> None:
        self._writable.clear()
        self._taken, self._take_until = self._count_taken(), self.loop.time() + self._times.write

    def resume_writing(self) -> None:
        self._writable.set()

    async def drain(self) -> None:
        """Wait while the client takes answers too slowly."""
        await self._writable.wait()

    def abort(self) -> None:
        self.transport.abort()

    def shutdown(self) -> None:
        """Close the connection after the present request, or after the next one if that comes soon."""
        self.stopping = True
        if self._stage is Stage.IDLE:
            self._expect_last_request()

    def _expect_last_request(self) -> None:
        self._deadline = self.loop.time() + self._times.last_request

    @property
    def is_read(self) -> bool:
        """Whether nothing of another request has come."""
        return not self._held and not self._paused

    @property
    def body_has_begun(self) -> bool:
        """Whether a part of the body has come, which the application has not asked for yet."""
        return bool(self._held)

    def _close(self) -> None:
        """Send the end of the connection, and wait for that of the client."""
        if self._stage is Stage.CLOSING or self.transport.is_closing():
            return
        self._stage, self._held = Stage.CLOSING, b""
        self._body = self._rest = None
        if self._exchange is not None and not self._exchange.complete:
            self._exchange.disconnect()
        if self._ended or not self.transport.can_write_eof():  # TLS, where the client answers the end
            self.transport.close()
        else:
            try:
                self.transport.write_eof()
            except OSError:  # the client has reset the connection
                self.transport.abort()
                return
        limit = self._times.last_request if self.stopping else self._times.linger
        self._deadline = self.loop.time() + (self._times.write if self.transport.get_write_buffer_size() else limit)
        self._resume()

    def _count_taken(self) -> int:
        return int(self.transport.written - self.transport.get_write_buffer_size())

    def close_if_overdue(self, now: float) -> None:
        """End the connection if the client should have sent or taken more by now."""
        if self.transport is None:
            return
        if not self._writable.is_set() and now >= self._take_until:
            taken = self._count_taken()
            if taken - self._taken < MIN_TAKEN:
                self.transport.abort()
                return
            self._taken, self._take_until = taken, now + self._times.write
        if self._stage is not Stage.CLOSING and (self._paused or self.transport.is_closing()):
            return
        if self._stage is Stage.BODY and self._is_slow(now):
            self._reject(408, f"the body came with less than {MIN_RATE} bytes per second")
        if self._deadline is None or now < self._deadline:
            return
        if self._stage is Stage.CLOSING:
            self.transport.abort()
        elif self._stage in (Stage.IDLE, Stage.REST):
            self._close()
        else:
            limit = self._times.head if self._stage is Stage.HEAD else self._times.body
            self._reject(408, f"the request did not continue for {limit:g} s")

    def _is_slow(self, now: float) -> bool:
        seconds = now - self._body_begun - self._times.rate_after
        return seconds > 0 and self._body_size < seconds * MIN_RATE

    # ---- reading ----

    def _read(self) -> None:
        """Read what is held, as far as the stage allows."""
        while self._held and self._may_read() and not self.transport.is_closing():
            if self._stage is Stage.IDLE:
                if self._leaves():
                    return
                self._stage, self._scanned, self._last = Stage.HEAD, 0, b""
                self._deadline = self.loop.time() + self._times.head
            elif self._stage is Stage.REST and self.body_left != UNTIL_END:
                self._drop()
                continue
            try:
                piece = self._piece()
                if self._stage is Stage.HEAD and self._scanned > MAX_HEAD:
                    self._reject(431, f"the head of the request has more than {MAX_HEAD} bytes")
                    return
                if len(self._line) > MAX_LINE:
                    self._reject(431, f"the line before a chunk has more than {MAX_LINE} bytes; send no extensions")
                    return
                self._parse(piece)
            except httptools.HttpParserError as error:
                logging.getLogger("hami.serve").debug("a client sent what is not HTTP: %s", error)
                self._reject(400, "the request is not valid HTTP/1.1")
                return
            if self._scanned > MAX_HEAD:
                self._reject(431, f"the body has more than {MAX_HEAD} bytes of trailers")
                return
        if self._ended and self._stage is not Stage.ANSWER and not self._held:
            self._close()  # what the client has begun does not go on
        elif len(self._held) >= RECEIVED or (self._stage is Stage.BODY and (self._full or not self._wanted)):
            self._pause()
        else:
            self._resume()

    def _leaves(self) -> bool:
        """Let the connection go on in the native door, if that may answer the next request; return whether it does."""
        native = self._native
        if native is None or self._stays or self.stopping or self._ended or not native.wants(self._held, self._hops):
            return False
        if self.transport.get_write_buffer_size() or self.transport.is_held:
            return False
        try:
            connection = socket.socket(fileno=os.dup(self.transport.get_extra_info("socket").fileno()))
        except OSError:  # the process has no descriptor left
            return False
        data, self._held = self._held, b""
        self.transport.abort()  # only of this descriptor
        native.add(connection, self._hops, data)
        return True

    def _may_read(self) -> bool:
        """Return whether more of what is held may be read: a body that is held completely is read at once."""
        if self._stage is Stage.BODY:
            return not self._full and (self._wanted or self.body_left <= len(self._held))
        return self._stage not in (Stage.ANSWER, Stage.CLOSING)

    def _parse(self, piece: bytes) -> None:
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._without_upgrade()

    def _drop(self) -> None:
        """Drop what is held of the rest of a body."""
        size = min(self.body_left, len(self._held))
        self._held = self._held[size:]
        self.body_left -= size
        if not self.body_left:
            self._parser = self._new_parser()  # the old one waits for the rest of the body
            self._next()

    def _piece(self) -> bytes:
        """Take the next bytes for the parser: they end where a request may end."""
        is_counted = self._stage is Stage.HEAD or self._in_trailers
        if is_counted:
            found = (self._last + self._held).find(END)
            end = len(self._held) if found < 0 else found + len(END) - len(self._last)
        elif self.body_left == UNTIL_END:
            end = self._chunks()
        else:
            end = self.body_left
        piece, self._held = self._held[:end], self._held[end:]
        if is_counted:
            self._scanned += len(piece)
            self._last = (self._last + piece)[1 - len(END) :]
        return piece

    def _chunks(self) -> int:
        """Return the bytes of what is held that are chunks and the lines before them, without trailers.

        Raises:
            httptools.HttpParserError: A line does not begin with a size.
        """
        position = min(self._chunk_left, len(self._held))
        self._chunk_left -= position
        while position < len(self._held):
            begun = len(self._line)
            self._line += self._held[position : position + 1 + MAX_LINE - begun]
            found = CHUNK_LINE.match(self._line)
            if found is None and b"\n" in self._line:
                raise httptools.HttpParserError("a chunk without a size")
            if found is None or found.end() > MAX_LINE:
                return len(self._held)
            self._line = b""
            position += found.end() - begun
            size = int(found[1], 16)
            if not size:
                self._in_trailers, self._scanned, self._last = True, 0, b"\n"
                return position
            left = len(self._held) - position
            self._chunk_left = max(0, size + len(b"\r\n") - left)
            position += min(size + len(b"\r\n"), left)
        return position

    def _pause(self) -> None:
        if not self._paused and not self._ended:
            self._paused = True
            self.transport.pause_reading()

    def _resume(self) -> None:
        if self._paused and not self.transport.is_closing():
            self._paused = False
            self.transport.resume_reading()

    def read_body(self) -> None:
        """Go on with the body, which the application waits for."""
        if self._stage is not Stage.BODY:
            return
        self._full = False
        if not self._wanted:
            self._wanted = True
            self._body_begun = self.loop.time()
            self._read_directly()
        self._deadline = self.loop.time() + self._times.body
        if self._held:
            self.loop.call_soon(self._read)
        else:
            self._resume()

    def _read_directly(self) -> None:
        """Let the socket write the rest of a large body behind what has come of it."""
        length = self.body_left
        if not RECEIVED < length <= DIRECT:
            return
        given = dict(self._headers).get(HEADER_LENGTH.encode(), b"")
        before = int(given) if given.isdigit() and len(given) <= 8 else 0
        memory = np.empty(length + ALIGNMENT, np.uint8)
        start = -(memory.ctypes.data + before) % ALIGNMENT
        self._body = memory.data[start : start + length]
        first, self._held = self._held, b""
        self._body[: len(first)] = first
        self._rest = self._body[len(first) :]
        self.body_left -= len(first)

    # ---- the parser ----

    def on_message_begin(self) -> None:
        if self._exchange is not None and not self._exchange.complete:
            raise ValueError("a request begins within another one")
        self._in_head = True
        self._url, self._headers = b"", []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            self._headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._upgrade = self._parser.should_upgrade()
        if self._upgrade:
            return
        method, version = self._parser.get_method().decode("ascii"), self._parser.get_http_version()
        if self._is_rejected(version):
            return
        url = httptools.parse_url(self._url)
        path = url.path.decode("ascii")
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "server": self._server,
            "client": self._client,
            "scheme": self._scheme,
            "root_path": "",
            "headers": self._headers,
            "state": {},
            "method": method,
            "path": urllib.parse.unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
        }
        headers = dict(self._headers)
        is_chunked = b"transfer-encoding" in headers
        length = headers.get(b"content-length", b"0").lstrip(b"0") or b"0"  # a number, which the parser has checked
        self.body_left = UNTIL_END if is_chunked else int(length)
        self._stage, self._wanted, self._scanned, self._last = Stage.BODY, False, 0, b""
        self._chunk_left, self._line, self._in_trailers = 0, b"", False
        self._body_size, self._full = 0, False
        self._deadline = self.loop.time() + self._times.body
        self._exchange = Exchange(
            self,
            self._scope,
            keep_alive=version != "1.0" and self._parser.should_keep_alive(),
            expects_continue=version != "1.0" and headers.get(b"expect", b"").lower() == b"100-continue",
        )
        if self._ended:
            self._expect_answer()
        task = self.loop.create_task(self._exchange.run(self._shared.app))
        self._shared.tasks.add(task)
        task.add_done_callback(self._shared.tasks.discard)

    def _is_rejected(self, version: str) -> bool:
        """Reject a head that is not of HTTP/1, or does not name one host; return whether it is."""
        hosts = sum(name == b"host" for name, _ in self._headers)
        if version not in ("1.0", "1.1"):
            self._reject(505, f"the request is in HTTP/{version}, and this server speaks HTTP/1.1")
        elif hosts > 1 or (not hosts and version == "1.1"):
            self._reject(400, f"a request in HTTP/1.1 has one header Host, got {hosts}")
        return self._stage is Stage.CLOSING

    def _without_upgrade(self) -> None:
        """Read a head again, without its wish for another protocol, which a server may ignore."""
        method = self._parser.get_method()
        version = self._parser.get_http_version().encode()
        self._parser = self._new_parser()
        if method == b"CONNECT":
            self._reject(405, "this server is not a proxy")
            return
        lines = [b"%b %b HTTP/%b" % (method, self._url, version)]
        lines += [b"%b: %b" % (name, value) for name, value in self._headers if name != b"upgrade"]
        self._parser.feed_data(b"\r\n".join([*lines, b"", b""]))

    def on_body(self, body: bytes) -> None:
        self._scanned = 0
        self._body_size += len(body)
        if self.body_left != UNTIL_END:
            self.body_left -= len(body)
        if self._stage is not Stage.BODY or self._exchange is None or self._exchange.complete:
            return
        self._deadline = self.loop.time() + self._times.body
        self._full = self._exchange.add(body)

    def on_message_complete(self) -> None:
        if self._upgrade or self._stage is Stage.CLOSING:  # its head was rejected
            return
        assert self._exchange is not None
        body, self._body = self._body, None
        self.body_left = 0
        if self._stage is Stage.REST or self._exchange.complete:
            self._next()
            return
        self._stage, self._deadline = Stage.ANSWER, None
        self._exchange.end_body(body)

    # ---- the end of an answer ----

    def end_exchange(self, exchange: Exchange) -> None:
        """Go on after an answer: with the next request, or with the rest of an unwanted body."""
        if self.transport.is_closing() or self._stage is Stage.CLOSING:
            return
        if self._stage is Stage.BODY:
            self._stage, self._deadline = Stage.REST, self.loop.time() + self._times.rest
            self._body = self._rest = None
            self.loop.call_soon(self._read)
        else:
            self._next()

    def _next(self) -> None:
        assert self._exchange is not None
        if not self._exchange.keep_alive or (self._ended and not self._held):
            self._close()
            return
        if self._in_trailers:
            self._parser = self._new_parser()  # the old one may end the connection after these
        self._stage, self._deadline, self._stays = Stage.IDLE, self.loop.time() + self._times.idle, False
        if self.stopping:
            self._expect_last_request()
        if self._held or self._paused:
            self.loop.call_soon(self._read)

    def _reject(self, status: int, text: str) -> None:
        """Answer a request that is not complete, if it has no answer yet, and close the connection."""
        if self._stage is Stage.CLOSING:  # it was rejected in the same step
            return
        is_answered = self._stage is Stage.REST
        if not is_answered and (self._exchange is None or self._exchange.complete or not self._exchange.started):
            self.transport.write(answer_of(status, text))
            answers.count("HTTP", status)
            if self._exchange is not None and not self._exchange.complete:
                self._exchange.reject(status)
        self._close()

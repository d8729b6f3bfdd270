"""Reads the body of a request within a limit of its size, and notices clients that leave."""

from __future__ import annotations

import asyncio
import os
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

from hami_serve.budget import Lease
from hami_serve.errors import BadRequest, TooLarge, UnknownContentCoding, UnknownTransferCoding, short

T = TypeVar("T")
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Scope = MutableMapping[str, Any]
Headers = Mapping[bytes, bytes]  # names in lower case
EXTENSION = "hami_serve"  # of ASGI: the server takes views as parts of an answer, and gives a large body under `body`
REJECTED = "rejected"  # in this extension: the status with which the server has answered a request that is not complete
SHORT = 1 << 14  # bytes of JSON that are parsed on the loop
READ, EXPANDED = 1 << 14, 1 << 18  # bytes of a compressed body, and of what they become, of one step
CODINGS = {b"content-encoding", b"transfer-encoding"}  # headers
ENCODINGS = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}
MAX_MEMBERS = 1 << 16  # of a body of gzip, which may be empty: each costs a new decompressor
THREADS = 2  # that expand and convert: others wait, so that few bodies are large in memory at a time
WATCH_AFTER_S = 0.01  # most requests end before, and need no task that waits for the client to leave


_threads = ThreadPoolExecutor(THREADS, "hami-serve-convert")


def _reset_after_fork() -> None:
    """Start threads again where they are needed: those of the parent do not exist here."""
    global _threads
    _threads = ThreadPoolExecutor(THREADS, "hami-serve-convert")


os.register_at_fork(after_in_child=_reset_after_fork)


async def off_loop(function: Callable[..., T], *arguments: Any) -> T:
    """Run a function on another thread, so that the loop answers others meanwhile."""
    return await asyncio.get_running_loop().run_in_executor(_threads, function, *arguments)


class ClientLeft(Exception):
    """The client has closed its connection: the answer has no reader."""


async def read_body(
    scope: Scope, receive: Receive, headers: Headers, limit: int, lease: Lease
) -> bytes | bytearray | memoryview:
    """Return the body, expanded if it is compressed; at most `limit` bytes, which are charged to `lease` first."""
    encoding = _encoding(scope) if headers.keys() & CODINGS else None
    declared = headers.get(b"content-length", b"0")
    length = int(declared.lstrip(b"0")[:20] or b"0") if declared.isdigit() else limit + 1
    if length > limit:
        raise TooLarge(f"the body has {short(declared.decode('latin-1'))} bytes; this server accepts {limit}")
    lease.add(length)
    body, more = await _part(receive)
    if more:
        parts, size = bytearray(length), len(body)  # of its final size: a buffer that grows has more than that
        parts[:size] = body
        while more and size <= limit:
            lease.resize(max(length, size))  # a body in chunks has declared no length
            part, more = await _part(receive)
            parts[size : size + len(part)] = part
            size += len(part)
        del parts[size:]
        body = parts
    whole: memoryview | None = scope.get("extensions", {}).get(EXTENSION, {}).get("body")
    body = body if whole is None else whole
    if len(body) > limit:
        raise TooLarge(f"the body has more than the {limit} bytes that this server accepts")
    lease.resize(len(body))
    if encoding is None:
        return body
    expanded = await off_loop(expand, body, encoding, limit, lease)
    lease.resize(len(expanded))
    return expanded


async def _part(receive: Receive) -> tuple[bytes | bytearray | memoryview, bool]:
    """Return the next part of a body, and whether there are more."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientLeft
    return message.get("body", b""), message.get("more_body", False)


def _encoding(scope: Scope) -> str | None:
    """Return how the body is compressed.

    Raises:
        UnknownTransferCoding: It is also coded in a way that the server does not undo.
        UnknownContentCoding: As above, by the client itself.
    """
    transfer = _listed(scope, b"transfer-encoding")
    if transfer not in ([], ["chunked"]):
        raise UnknownTransferCoding(
            f"the Transfer-Encoding is {short(', '.join(transfer))}; this server accepts chunked; name the compression "
            "of a body in Content-Encoding"
        )
    given = [each for each in _listed(scope, b"content-encoding") if each != "identity"]
    if not given:
        return None
    if len(given) > 1 or given[0] not in ENCODINGS:
        raise UnknownContentCoding(
            f"the Content-Encoding is {short(', '.join(given))}; this server accepts one of gzip and deflate"
        )
    return ENCODINGS[given[0]]


def _listed(scope: Scope, name: bytes) -> list[str]:
    """Return the elements of a header, which may be in several fields."""
    fields = b",".join(value for key, value in scope["headers"] if key == name).decode("latin-1").lower()
    return [each for element in fields.split(",") if (each := element.strip(" \t"))] if fields else []


def expand(body: bytes | bytearray | memoryview, encoding: str, limit: int, lease: Lease) -> bytearray:
    """Decompress in pieces, and stop as soon as the result exceeds the limit, or what the server has for it."""
    expander = _expander(encoding, body)
    expanded = bytearray()
    members = 1
    for start in range(0, len(body), READ):
        rest: bytes | memoryview = memoryview(body)[start : start + READ]
        while rest:
            if expander.eof:
                if encoding != "gzip":
                    raise BadRequest(f"the body has bytes after the end of its {encoding}")
                if members == MAX_MEMBERS:
                    raise BadRequest(f"the body has more than {MAX_MEMBERS} members of gzip")
                expander, members = _expander(encoding, body), members + 1
            try:
                piece = expander.decompress(rest, EXPANDED)
            except zlib.error as error:
                what = "the body is" if members == 1 else f"member {members} of the body is"
                raise BadRequest(f"{what} not valid {encoding}: {error}") from None
            rest = expander.unused_data if expander.eof else expander.unconsumed_tail
            if len(expanded) + len(piece) > limit:
                raise TooLarge(f"the expanded body has more than the {limit} bytes that this server accepts")
            lease.add(len(piece))
            expanded += piece
    if not expander.eof:
        raise BadRequest(f"the body is truncated {encoding}")
    return expanded


def _expander(encoding: str, body: bytes | bytearray | memoryview) -> zlib._Decompress:
    """Return what decompresses a body. Some clients send deflate without the wrapper of zlib (RFC 9110, 8.4.1.2)."""
    if encoding == "gzip":
        return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    is_wrapped = len(body) < 2 or (body[0] & 0xF == zlib.DEFLATED and (body[0] << 8 | body[1]) % 31 == 0)
    return zlib.decompressobj(wbits=zlib.MAX_WBITS if is_wrapped else -zlib.MAX_WBITS)


class UntilClientLeaves:
    """Cancels the task inside the block if the client disconnects, and raises ClientLeft then."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._left = False
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._timer = task.get_loop().call_later(WATCH_AFTER_S, self._start, task)

    def _start(self, task: asyncio.Task[Any]) -> None:
        self._watch = task.get_loop().create_task(self._wait(task))

    async def _wait(self, task: asyncio.Task[Any]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._left = True
        task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._watch is not None:
            self._watch.cancel()
        if self._left and kind is asyncio.CancelledError:
            if uncancel := getattr(asyncio.current_task(), "uncancel", None):  # from Python 3.11 on
                uncancel()
            raise ClientLeft from None

"""Reads the body of a request within limits of size and time, and notices clients that leave."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from types import TracebackType
from typing import Any

from hami_serve.errors import BadRequest, TooLarge, short

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
BODY_S = 60.0  # limit for the next part of a body; a client that sends more slowly gives up its connection
OFFLOAD = 1 << 18  # compressed bytes from which on they are expanded on another thread


class ClientLeft(Exception):
    """The client has closed its connection: the answer has no reader."""


async def read_body(receive: Receive, headers: Any, limit: int) -> bytearray:
    """Return the body, expanded if it is compressed; at most `limit` bytes."""
    declared = headers.get("content-length", "0")
    if not declared.isdecimal() or int(declared[:20]) > limit:
        raise TooLarge(f"the body has {short(declared)} bytes; this server accepts {limit}")
    body = bytearray()
    while True:
        try:
            message = await asyncio.wait_for(receive(), BODY_S) if body else await receive()
        except asyncio.TimeoutError:
            raise BadRequest(f"the body did not continue for {BODY_S:g} s") from None
        if message["type"] == "http.disconnect":
            raise ClientLeft
        body += message.get("body", b"")
        if len(body) > limit:
            raise TooLarge(f"the body has more than the {limit} bytes that this server accepts")
        if not message.get("more_body", False):
            break
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("identity", ""):
        return body
    if encoding not in ("gzip", "deflate"):
        raise BadRequest(f"the Content-Encoding is {short(encoding)}; this server accepts gzip and deflate")
    if len(body) < OFFLOAD:
        return expand(body, encoding, limit)
    return await asyncio.to_thread(expand, body, encoding, limit)


def expand(body: bytearray, encoding: str, limit: int) -> bytearray:
    """Decompress, and stop as soon as the result exceeds the limit."""
    expander = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16 if encoding == "gzip" else zlib.MAX_WBITS)
    try:
        expanded = bytearray(expander.decompress(bytes(body), limit + 1))
    except zlib.error as error:
        raise BadRequest(f"the body is not valid {encoding}: {error}") from None
    if len(expanded) > limit:
        raise TooLarge(f"the expanded body has more than the {limit} bytes that this server accepts")
    if not expander.eof:
        raise BadRequest(f"the body is truncated {encoding}")
    return expanded


class UntilClientLeaves:
    """Cancels the task inside the block if the client disconnects, and raises ClientLeft then."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._left = False

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._watch = asyncio.create_task(self._wait(task))

    async def _wait(self, task: asyncio.Task[Any]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._left = True
        task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._watch.cancel()
        if self._left and kind is asyncio.CancelledError:
            if uncancel := getattr(asyncio.current_task(), "uncancel", None):  # from Python 3.11 on
                uncancel()
            raise ClientLeft from None

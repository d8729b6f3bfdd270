"""uvicorn's HTTP protocol, with one system call for the head and the body of an answer.

uvicorn writes them separately. Each write of asyncio is a system call, and over loopback it wakes the client, which
then waits for the rest.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

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


class JoiningProtocol(HttpToolsProtocol):
    """The protocol of a connection whose writes are joined."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(JoiningTransport(transport, self.loop))  # type: ignore[arg-type]

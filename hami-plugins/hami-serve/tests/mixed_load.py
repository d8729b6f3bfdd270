"""Clients of all kinds at once: plain, pipelining, slow, broken, and leaving ones. Each body carries its own hash.

HAMI_SERVE_MIXED_REQUESTS is the number of requests of a run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable

REQUESTS = int(os.environ.get("HAMI_SERVE_MIXED_REQUESTS", "2000"))
CLIENTS = 24
LENGTH = re.compile(rb"content-length: (\d+)")
HASH = 32  # bytes before a body
RESET = struct.pack("ii", 1, 0)  # a connection that is closed so is reset


class Wrong(AssertionError):
    """An answer that is lost, doubled, or of another request."""


def body_of(source: random.Random, size: int) -> bytes:
    data = source.randbytes(size)
    return hashlib.sha256(data).digest() + data


def request_of(data: bytes, path: str, *headers: str) -> bytes:
    """Return a request with a tensor of bytes, whose answer has them too."""
    entry = {"name": "x", "datatype": "UINT8", "shape": [len(data)], "parameters": {"binary_data_size": len(data)}}
    head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(head) + len(data)}"]
    lines += [f"Inference-Header-Content-Length: {len(head)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + head + data


class Client:
    """One connection, and what it expects."""

    def __init__(self, port: int, source: random.Random) -> None:
        self._port, self._source = port, source
        self._socket: socket.socket | None = None
        self.seen: Counter[str] = Counter()

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=60)
        return self._socket

    def close(self, *, reset: bool = False) -> None:
        if self._socket is not None:
            if reset:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self._socket.close()
            self._socket = None

    def _answer(self, stream: socket.SocketIO, data: bytes) -> None:
        head = b"".join(iter(stream.readline, b"\r\n"))
        if not head.startswith(b"HTTP/1.1 200"):
            raise Wrong(f"expected status 200, got {head[:200]!r}")
        found = stream.read(int(LENGTH.search(head)[1]))
        if not found.endswith(data) or hashlib.sha256(found[HASH - len(data) :]).digest() != data[:HASH]:
            raise Wrong("an answer has the bytes of another request")
        if found.count(data[:HASH]) != 1:
            raise Wrong("an answer has its bytes twice")

    def _exchange(self, sent: list[bytes], bodies: list[bytes], *, slowly: bool = False) -> None:
        client = self._connected()
        for each in sent:
            client.sendall(each)
        with client.makefile("rb", buffering=1 << 10 if slowly else -1) as stream:
            for data in bodies:
                self._answer(stream, data)

    def _path(self) -> str:
        return "/v2/models/any/infer" if self._source.random() < 0.8 else "/v2/models/python/infer"

    # ---- kinds of clients

    def plain(self) -> None:
        data = body_of(self._source, self._source.choice([1, 100, 5000, 100_000]))
        self._exchange([request_of(data, self._path())], [data])

    def pipelined(self) -> None:
        bodies = [body_of(self._source, self._source.randrange(1, 300)) for _ in range(8)]
        self._exchange([b"".join(request_of(data, self._path()) for data in bodies)], bodies)

    def in_pieces(self) -> None:
        data = body_of(self._source, 3000)
        whole = request_of(data, self._path())
        cuts = sorted(self._source.sample(range(1, len(whole)), 4))
        pieces = [whole[begin:end] for begin, end in zip([0, *cuts], [*cuts, None], strict=True)]
        self._exchange(pieces, [data])

    def last(self) -> None:
        data = body_of(self._source, 200)
        self._exchange([request_of(data, self._path(), "Connection: close")], [data])
        if self._connected().recv(1):
            raise Wrong("bytes after the last answer of a connection")
        self.close()

    def half_closed(self) -> None:
        data = body_of(self._source, 200)
        self.close()
        client = self._connected()
        client.sendall(request_of(data, self._path()))
        client.shutdown(socket.SHUT_WR)
        self._exchange([], [data])
        self.close()

    def reads_slowly(self) -> None:
        self.close()
        client = self._connected()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
        data = body_of(self._source, 1 << 20)
        self._exchange([request_of(data, "/v2/models/any/infer")], [data], slowly=True)
        self.close()

    def leaves(self) -> None:
        whole = request_of(body_of(self._source, 20_000), self._path())
        self._connected().sendall(whole[: self._source.randrange(1, len(whole) + 1)])
        self.close(reset=self._source.random() < 0.5)

    def broken(self) -> None:
        whole = bytearray(request_of(body_of(self._source, 50), self._path()))
        for _ in range(3):
            whole[self._source.randrange(120)] = self._source.randrange(256)
        self.close()
        client = self._connected()
        with contextlib.suppress(OSError):
            client.sendall(whole)
            client.shutdown(socket.SHUT_WR)
            while client.recv(1 << 16):
                pass
        self.close()


KINDS = {
    Client.plain: 10,
    Client.pipelined: 3,
    Client.in_pieces: 2,
    Client.last: 1,
    Client.half_closed: 1,
    Client.reads_slowly: 0.2,
    Client.leaves: 2,
    Client.broken: 1,
}


def mixed_load(port: int, requests: int = REQUESTS, seed: int = 1) -> Counter[str]:
    """Send about as many requests; return how many there were of each kind.

    Raises:
        Wrong: An answer was lost, or is that of another request.
    """
    seen: Counter[str] = Counter()
    failures: list[BaseException] = []
    steps = threading.Semaphore(requests)

    def run(number: int) -> None:
        source = random.Random(seed * 1000 + number)
        client = Client(port, source)
        kinds: list[Callable[[Client], None]] = [*KINDS]
        try:
            while not failures and steps.acquire(blocking=False):
                (kind,) = source.choices(kinds, [*KINDS.values()])
                kind(client)
                seen[kind.__name__] += 1
        except BaseException as error:
            failures.append(error)
        finally:
            client.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(CLIENTS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if failures:
        raise failures[0]
    return seen

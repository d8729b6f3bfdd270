"""Clients of all kinds at once: plain, pipelining, slow, broken, and leaving ones. Each body carries its own hash.

HAMI_SERVE_MIXED_REQUESTS is the least number of requests of a run. The server has the models of MODELS, and `python`.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import random
import re
import socket
import struct
import threading
from collections import Counter

from http2_frames import END_STREAM, Kind, call, frame, preface

REQUESTS = int(os.environ.get("HAMI_SERVE_MIXED_REQUESTS", "2000"))
CLIENTS = 24
LENGTH = re.compile(rb"content-length: (\d+)")
HASH = 32  # bytes before a body
RESET = struct.pack("ii", 1, 0)  # a connection that is closed so is reset
BROKEN_S = 1.0  # that a client waits for an answer to what is broken: the server may wait for the rest for longer
WINDOW = 1 << 30  # bytes of answers that a client of gRPC takes
HEAD = 9  # bytes of a frame before its content
BYTES = {"datatype": "BYTES", "shape": [1]}
MODELS = {
    "any": "Identity",
    "bytes": {"source": "Identity", "inputs": [{"name": "x", **BYTES}], "outputs": [{"name": "y", **BYTES}]},
}


class Wrong(AssertionError):
    """An answer that is lost, doubled, or of another request."""


def body_of(source: random.Random, size: int) -> bytes:
    data = source.randbytes(size)
    return hashlib.sha256(data).digest() + data


def request_of(data: bytes, path: str, *headers: str) -> bytes:
    """Return a request with a tensor of bytes, whose answer has them too."""
    entry: dict[str, object] = {"name": "x", "datatype": "UINT8", "shape": [len(data)]}
    if "/bytes/" in path:
        data = sized(data)
        entry |= BYTES
    entry["parameters"] = {"binary_data_size": len(data)}
    head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    return http(path, head + data, f"Inference-Header-Content-Length: {len(head)}", *headers)


def http(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def sized(element: bytes) -> bytes:
    return struct.pack("<I", len(element)) + element


def field(number: int, content: bytes) -> bytes:
    """Return a field of a message of protobuf, with a size of less than 2 MiB."""
    size = len(content)
    return bytes([number << 3 | 2, size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14]) + content


def message_of(data: bytes, model: str) -> bytes:
    """Return a ModelInferRequest with a tensor of bytes, whose answer has them too."""
    is_bytes = model == "bytes"
    size = 1 if is_bytes else len(data)
    shape = field(3, bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14]))
    entry = field(1, b"x") + field(2, b"BYTES" if is_bytes else b"UINT8") + shape
    return field(1, model.encode()) + field(5, entry) + field(7, sized(data) if is_bytes else data)


def check(found: bytes, data: bytes) -> None:
    if not found.endswith(data) or hashlib.sha256(found[HASH - len(data) :]).digest() != data[:HASH]:
        raise Wrong("an answer has the bytes of another request")
    if found.count(data[:HASH]) != 1:
        raise Wrong("an answer has its bytes twice")


class Client:
    """One connection, and what it expects."""

    def __init__(self, port: int, source: random.Random) -> None:
        self._port, self._source = port, source
        self._socket: socket.socket | None = None
        self._stream: io.BufferedReader | None = None

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=60)
        return self._socket

    def close(self, *, reset: bool = False) -> None:
        if self._socket is not None:
            if reset:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            if self._stream is not None:
                self._stream.close()
            self._socket.close()
            self._socket = self._stream = None

    def _received(self, buffering: int = -1) -> io.BufferedReader:
        """Return the only reader of the connection, so that bytes after an answer are not dropped."""
        if self._stream is None:
            self._stream = self._connected().makefile("rb", buffering=buffering)
        return self._stream

    def _body(self) -> bytes:
        """Return the body of the next answer."""
        stream = self._received()
        head = b"".join(iter(stream.readline, b"\r\n"))
        if not head.startswith(b"HTTP/1.1 200"):
            raise Wrong(f"expected status 200, got {head[:200]!r}")
        return stream.read(int(LENGTH.search(head)[1]))

    def _exchange(self, sent: list[bytes], bodies: list[bytes], *, slowly: bool = False) -> None:
        client = self._connected()
        for each in sent:
            client.sendall(each)
        self._received(1 << 10 if slowly else -1)
        for data in bodies:
            check(self._body(), data)

    def _model(self) -> str:
        return self._source.choices(("any", "bytes", "python"), (6, 2, 2))[0]

    def _path(self) -> str:
        return f"/v2/models/{self._model()}/infer"

    def _send_broken(self, whole: bytearray, end: int) -> None:
        """Send a request of which three of the first bytes are others, on a connection of its own."""
        for _ in range(3):
            whole[self._source.randrange(end)] = self._source.randrange(256)
        self.close()
        client = self._connected()
        client.settimeout(BROKEN_S)
        with contextlib.suppress(OSError):
            client.sendall(whole)
            client.shutdown(socket.SHUT_WR)
            while client.recv(1 << 16):
                pass
        self.close()


class HttpClient(Client):
    """One connection of HTTP/1.1."""

    # ---- kinds of clients

    def in_json(self) -> None:
        data = body_of(self._source, self._source.choice([10, 3000, 90_000]))
        entry = {"name": "x", "datatype": "UINT8", "shape": [len(data)], "data": [*data]}
        self._connected().sendall(http("/v2/models/any/infer", json.dumps({"inputs": [entry]}).encode()))
        check(bytes(json.loads(self._body())["outputs"][0]["data"]), data)

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
        if self._received().read(1):
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
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        data = body_of(self._source, 1 << 18)
        self._exchange([request_of(data, "/v2/models/any/infer")], [data], slowly=True)
        self.close()

    def leaves(self) -> None:
        whole = request_of(body_of(self._source, 20_000), self._path())
        self._connected().sendall(whole[: self._source.randrange(1, len(whole) + 1)])
        self.close(reset=self._source.random() < 0.5)

    def broken(self) -> None:
        self._send_broken(bytearray(request_of(body_of(self._source, 50), self._path())), 120)


class GrpcClient(Client):
    """One connection of HTTP/2, with calls beside each other."""

    _next = 1  # stream
    _held = b""  # received, and not read yet

    def close(self, *, reset: bool = False) -> None:
        self._next, self._held = 1, b""
        super().close(reset=reset)

    def _calls(self, count: int) -> tuple[list[bytes], dict[int, bytes]]:
        """Return the frames of calls, and the data of each by its stream."""
        bodies = {
            self._next + 2 * index: body_of(self._source, self._source.randrange(1, 2000)) for index in range(count)
        }
        start = b"" if self._socket else preface(WINDOW) + frame(Kind.WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW))
        self._next += 2 * count
        calls = [call("ModelInfer", message_of(data, self._model()), stream) for stream, data in bodies.items()]
        return [start, *calls], bodies

    def _read(self, bodies: dict[int, bytes]) -> None:
        """Read until all calls have ended, each with its own data, once."""
        found = dict.fromkeys(bodies, b"")
        while found:
            received = self._connected().recv(1 << 16)
            if not received:
                raise Wrong(f"{len(found)} calls have no answer")
            held = self._held + received
            while len(held) >= HEAD and len(held) >= (end := HEAD + int.from_bytes(held[:3], "big")):
                kind, flags, stream = held[3], held[4], int.from_bytes(held[5:HEAD], "big")
                if kind == Kind.GOAWAY or (kind == Kind.RST_STREAM and stream in found):
                    raise Wrong(f"a call ended by a frame of the kind {kind}")
                if kind == Kind.DATA and stream in bodies:  # else it was cancelled
                    found[stream] += held[HEAD:end]
                if kind == Kind.HEADERS and flags & END_STREAM and stream in bodies:
                    check(found.pop(stream), bodies[stream])
                held = held[end:]
            self._held = held

    # ---- kinds of clients

    def calls(self) -> None:
        sent, bodies = self._calls(8)
        self._connected().sendall(b"".join(sent))
        self._read(bodies)

    def calls_in_pieces(self) -> None:
        sent, bodies = self._calls(4)
        whole = b"".join(sent)
        cuts = sorted(self._source.sample(range(1, len(whole)), 4))
        for begin, end in zip([0, *cuts], [*cuts, None], strict=True):
            self._connected().sendall(whole[begin:end])
        self._read(bodies)

    def cancelled_call(self) -> None:
        """One of four calls is cancelled, maybe before all of it was sent; the others are answered."""
        sent, bodies = self._calls(1)
        stream = self._next
        self._next += 2
        whole = call("ModelInfer", message_of(body_of(self._source, 20_000), "any"), stream)
        ends = [0]  # of frames
        while ends[-1] < len(whole):
            ends.append(ends[-1] + HEAD + int.from_bytes(whole[ends[-1] : ends[-1] + 3], "big"))
        cut = whole[: self._source.choice(ends[1:])]
        sent.append(cut + frame(Kind.RST_STREAM, 0, stream, bytes([0, 0, 0, 8])))
        client = self._connected()
        others, more = self._calls(2)
        client.sendall(b"".join(sent + others))
        self._read(bodies | more)

    def leaving_call(self) -> None:
        whole = b"".join(self._calls(2)[0])
        self._connected().sendall(whole[: self._source.randrange(1, len(whole) + 1)])
        self.close(reset=self._source.random() < 0.5)

    def broken_call(self) -> None:
        self.close()
        whole = bytearray(b"".join(self._calls(1)[0]))
        self._send_broken(whole, len(whole))


KINDS: dict[type[Client], dict[str, float]] = {
    HttpClient: {
        "plain": 10,
        "pipelined": 3,
        "in_json": 0.5,
        "in_pieces": 2,
        "last": 1,
        "half_closed": 1,
        "reads_slowly": 0.2,
        "leaves": 2,
        "broken": 1,
    },
    GrpcClient: {"calls": 10, "calls_in_pieces": 2, "cancelled_call": 2, "leaving_call": 2, "broken_call": 1},
}
COUNTS = {"pipelined": 8, "calls": 8, "calls_in_pieces": 4, "cancelled_call": 4, "leaving_call": 2}  # else one


def mixed_load(port: int, requests: int = REQUESTS, seed: int = 1, grpc: int | None = None) -> Counter[str]:
    """Send at least as many requests, over gRPC too if there is a port for it; return how many there were of each kind.

    Raises:
        Wrong: An answer was lost, or is that of another request.
    """
    seen: Counter[str] = Counter()
    failures: list[BaseException] = []
    lock = threading.Lock()

    def run(number: int) -> None:
        source = random.Random(seed * 1000 + number)
        client = GrpcClient(grpc, source) if grpc and number % 2 else HttpClient(port, source)
        kinds = KINDS[type(client)]
        try:
            while not failures and seen.total() < requests:
                (kind,) = source.choices([*kinds], [*kinds.values()])
                getattr(client, kind)()
                with lock:
                    seen[kind] += COUNTS.get(kind, 1)
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

"""Frames of HTTP/2, for clients of gRPC that do what libraries do not: they take no answers, and leave at any place."""

from __future__ import annotations

import socket
import struct
from enum import IntEnum

SERVICE = "/inference.GRPCInferenceService"
END_STREAM, END_HEADERS, ACK = 1, 4, 1  # flags
MAX_DATA = 1 << 14  # bytes of a frame
INITIAL_WINDOW = 4  # a setting: bytes of answers of a stream that the client takes


class Kind(IntEnum):
    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


def frame(kind: Kind, flags: int, stream: int, data: bytes = b"") -> bytes:
    return struct.pack(">I", len(data))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + data


def preface(window: int = (1 << 16) - 1) -> bytes:
    settings = frame(Kind.SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW, window))
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings + frame(Kind.SETTINGS, ACK, 0)


def header(name: str, value: str) -> bytes:
    """Return a literal without an index, whose lengths have one byte."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def headers(stream: int, flags: int, block: bytes) -> bytes:
    """Return the frames of a block of headers."""
    pieces = [block[at : at + MAX_DATA] for at in range(0, len(block), MAX_DATA)]
    kinds = [Kind.HEADERS] + [Kind.CONTINUATION] * (len(pieces) - 1)
    ends = [0] * (len(pieces) - 1) + [END_HEADERS]
    found = [frame(kind, end, stream, each) for kind, end, each in zip(kinds, ends, pieces, strict=True)]
    found[0] = found[0][:4] + bytes([found[0][4] | flags]) + found[0][5:]
    return b"".join(found)


def call(method: str, message: bytes, stream: int, **metadata: str) -> bytes:
    """Return the frames of a call with one message."""
    given = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"{SERVICE}/{method}",
        ":authority": "x",
        "content-type": "application/grpc",
        "te": "trailers",
        **{name.replace("_", "-"): value for name, value in metadata.items()},
    }
    block = b"".join(map(header, given, given.values()))
    data = b"\0" + struct.pack(">I", len(message)) + message
    pieces = [data[at : at + MAX_DATA] for at in range(0, len(data), MAX_DATA)]
    ends = [0] * (len(pieces) - 1) + [END_STREAM]
    frames = [frame(Kind.DATA, flags, stream, piece) for flags, piece in zip(ends, pieces, strict=True)]
    return headers(stream, 0, block) + b"".join(frames)


def reset(client: socket.socket) -> None:
    """Close a connection as a process that is killed with unread data does."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()

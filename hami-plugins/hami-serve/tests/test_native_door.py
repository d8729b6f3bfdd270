"""The native door answers as the door in Python does, byte for byte, and leaves to it what it does not answer."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import gzip
import json
import os
import re
import resource
import select
import socket
import struct
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import hami
import numpy as np
import pytest
from conftest import Running
from server_process import ask, free_port, running

from hami_serve import native_door
from hami_serve.commands import add_serve
from hami_serve.http_tensors import MAX_NUMBER
from hami_serve.http_times import Times
from hami_serve.native_door import NativeDoor


def tensor(datatype: str, shape: list[int], **rest: object) -> dict[str, object]:
    return {"name": "x", "datatype": datatype, "shape": shape, **rest}


def io(datatype: str, shape: list[int]) -> dict[str, object]:
    return {"inputs": [tensor(datatype, shape)], "outputs": [{**tensor(datatype, shape), "name": "y"}]}


MODELS = {
    "any": "Identity",
    "numbers": {"source": "Identity", **io("FP32", [-1, 2])},
    "brain": {"source": "Identity", **io("BF16", [-1, 2])},
    "bytes": {"source": "Identity", **io("BYTES", [1])},
    "text": {"source": "Identity", **io("STRING", [1])},
    "pair": {
        "source": "Identity",
        "inputs": [{**tensor("FP32", [4]), "name": "data"}, {**tensor("BF16", [4]), "name": "b"}],
        "outputs": [{**tensor("BF16", [4]), "name": "b"}, {**tensor("FP32", [4]), "name": "data"}],
    },
    "urgent": {
        "source": "HasKey(priority)[Add(mark='with a priority'),Add(mark='without')]",
        "outputs": [{"name": "mark", "datatype": "BYTES", "shape": [1]}],
    },
    "slow": "Sleep(1s)",
    "fails": {"source": "TestFails"},
    "python": "TestRaises",
}


@pytest.fixture(scope="module")
def doors() -> Iterator[tuple[Running, Running]]:
    both = Running(MODELS, door="python"), Running(MODELS, door="native")
    yield both
    for each in both:
        each.close()


def request(body: bytes, path: str = "/v2/models/any/infer", *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def of_json(*inputs: object, **rest: object) -> bytes:
    return json.dumps({"inputs": inputs, **rest}).encode()


def of_bytes(data: bytes, *inputs: object, path: str = "/v2/models/any/infer", **rest: object) -> bytes:
    head = of_json(*inputs, **rest)
    return request(head + data, path, f"Inference-Header-Content-Length: {len(head)}")


def sized(element: bytes) -> bytes:
    return struct.pack("<I", len(element)) + element


def text(size: int) -> dict[str, object]:
    return tensor("BYTES", [1], parameters={"binary_data_size": size})


def chunked(chunks: bytes, *headers: str) -> bytes:
    lines = ["POST /v2/models/any/infer HTTP/1.1", "Host: 127.0.0.1", "Transfer-Encoding: chunked", *headers, "", ""]
    return "\r\n".join(lines).encode() + chunks


def of_trailers(trailers: bytes) -> bytes:
    return chunked(b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(ONE), ONE, trailers))


def coded(coding: str, body: bytes, *headers: str) -> bytes:
    return request(body, "/v2/models/any/infer", f"Content-Encoding: {coding}", *headers)


def read_answer(stream: IO[bytes]) -> bytes:
    """Return the next answer, without its date."""
    head = b""
    while (line := stream.readline()).strip():
        head += line
    length = int(re.search(rb"content-length: (\d+)", head)[1])
    return re.sub(rb"date: [^\r]*\r\n", b"", head) + b"\r\n" + stream.read(length)


def exchange(port: int, *sent: bytes, answers: int = 0) -> bytes:
    """Send parts of requests on one connection, and return the answers, by default one for each, without dates."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client, client.makefile("rb") as stream:
        for each in sent:
            client.sendall(each)
        return b"".join(read_answer(stream) for _ in range(answers or len(sent)))


FLOATS = struct.pack("<4f", 1.5, -0.0, 3.4e38, 1e-7)
BINARY = {"parameters": {"binary_data_output": True}}
SIZE = {"parameters": {"binary_data_size": 16}}
ONE = of_json(tensor("INT8", [1], data=[1]))
GZIPPED = gzip.compress(ONE)
FLOATS_HEAD = of_json(tensor("FP32", [2, 2], **SIZE), **BINARY)
EVERY_97TH = np.arange(0, 0x7BFF, 97, dtype=np.uint16)
HALVES = [  # numbers of half precision, those in the middle between two, and the next ones after those
    float(number)
    for low, high in zip(EVERY_97TH.view(np.float16), (EVERY_97TH + np.uint16(1)).view(np.float16), strict=True)
    for middle in [(np.float64(low) + np.float64(high)) / 2]
    for number in (low, -middle, np.nextafter(middle, 0), np.nextafter(middle, 1e9))
]
REQUESTS = {
    "probe": b"GET /v2/health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "ready": b"GET /v2/health/ready HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "metadata": b"GET /v2/models/any HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "unknown path": b"GET /v3 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "no HTTP": b"nonsense\r\n\r\n",
    "floats": request(of_json(tensor("FP32", [3, 2], data=[1, 2.5, -3e-5, 1e16, 123456789.125, 1e-4]), id="a")),
    "doubles": request(of_json(tensor("FP64", [6], data=[0.1, 1e22, 1e-5, 12345678901234567, -0.0, 5e-324]))),
    "the sign of zero": request(b'{"inputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[-0,0]}]}'),
    "parameters twice": request(
        b'{"inputs":[{"name":"x","datatype":"INT8","shape":[1],"parameters":{"binary_data_size":1},"parameters":{}}]}\1',
        "/v2/models/any/infer",
        "Inference-Header-Content-Length: 105",
    ),
    "integers": request(of_json(tensor("INT8", [2], data=[-128, 127]))),
    "long integers": request(of_json(tensor("UINT64", [2], data=[0, 2**64 - 1]))),
    "flags": request(of_json(tensor("BOOL", [2], data=[True, False]))),
    "out of range": request(of_json(tensor("INT8", [2], data=[1, 128]))),
    "too few": request(of_json(tensor("INT8", [2], data=[1]))),
    "not a number": request(of_json(tensor("FP32", [1], data=["a"]))),
    "NaN": request(of_json(tensor("FP32", [2], data=[None, 1]))),
    "nested": request(of_json(tensor("FP32", [1, 2], data=[[1, 2]]))),
    "text": request(of_json(tensor("BYTES", [2], data=["a", "é"]))),
    "twice": request(of_json(tensor("INT8", [1], data=[1]), tensor("INT8", [1], data=[1]))),
    "broken JSON": request(b'{"inputs": ['),
    "a byte order mark": request(b"\xef\xbb\xbf" + of_json(tensor("INT8", [1], data=[1]))),
    "space before": request(b" \r\n" * 100 + of_json(tensor("INT8", [1], data=[1]))),
    "no inputs": request(b"{}"),
    "two inputs": request(of_json(tensor("INT8", [1], data=[1]), {**tensor("INT8", [1], data=[2]), "name": "y"})),
    "a name of the server": request(of_json({**tensor("INT8", [1], data=[1]), "name": "priority"})),
    "bytes": of_bytes(FLOATS, tensor("FP32", [4], **SIZE)),
    "bytes both ways": of_bytes(FLOATS, tensor("FP32", [2, 2], **SIZE), id="b", **BINARY),
    "wanted as bytes": of_bytes(
        FLOATS, tensor("FP32", [4], **SIZE), outputs=[{"name": "result", "parameters": {"binary_data": True}}]
    ),
    "infinity": of_bytes(struct.pack("<4f", 1, 2, float("inf"), 4), tensor("FP32", [4], **SIZE)),
    "half precision": of_bytes(np.arange(8, dtype=np.float16).tobytes(), tensor("FP16", [8], **SIZE)),
    "every number of half precision": of_bytes(
        np.delete(np.arange(1 << 16, dtype=np.uint16), [0x7C00, 0xFC00]).tobytes(),
        tensor("FP16", [(1 << 16) - 2], parameters={"binary_data_size": 2 * ((1 << 16) - 2)}),
    ),
    "numbers between those of half precision": request(
        of_json(tensor("FP16", [len(HALVES)], data=HALVES), parameters={"binary_data_output": True})
    ),
    "too large for half precision": request(of_json(tensor("FP16", [1], data=[65520]))),
    "a long text": request(of_json(tensor("BYTES", [1], data=["a" * (1 << 17)]))),
    "brain floats as bytes": of_bytes(
        struct.pack("<8H", 0x3F80, 0xC000, 0x7F80, 0x7FC1, 0, 0x8000, 1, 0x7F7F),
        tensor("BF16", [2, 4], **SIZE),
        **BINARY,
    ),
    "brain floats in JSON": request(of_json(tensor("BF16", [3], data=[1, -0.5, 1.001]))),
    "too large for brain floats": request(of_json(tensor("BF16", [1], data=[1e39]))),
    "declared as brain floats": of_bytes(
        struct.pack("<4f", 1.00390625, 1.01171875, 3.39e38, float("nan")),
        tensor("FP32", [2, 2], **SIZE),
        path="/v2/models/brain/infer",
        **BINARY,
    ),
    "declared brain floats in JSON": request(
        of_json(tensor("BF16", [1, 2], data=[1.00390625, 2])), "/v2/models/brain/infer"
    ),
    "brain floats for numbers": of_bytes(
        bytes(8), tensor("BF16", [2, 2], parameters={"binary_data_size": 8}), path="/v2/models/numbers/infer", **BINARY
    ),
    "one text": request(of_json(tensor("BYTES", [1], data=['a " \u0000 é \U0001f600']))),
    "an empty text": request(of_json(tensor("BYTES", [1], data=[""]))),
    "half of a pair": request(b'{"inputs":[{"name":"x","datatype":"BYTES","shape":[1],"data":["\\ud800"]}]}'),
    "a number as text": request(of_json(tensor("BYTES", [1], data=[1]))),
    "a text with two axes": request(of_json(tensor("BYTES", [1, 1], data=["a"]))),
    "too many texts": request(of_json(tensor("BYTES", [1], data=["a", "b"]))),
    "a text named data": request(of_json({**tensor("BYTES", [1], data=["a"]), "name": "data"})),
    "a text with a name of the server": request(of_json({**tensor("BYTES", [1], data=["1"]), "name": "priority"})),
    "a text beside numbers": request(
        of_json(tensor("INT8", [1], data=[1]), {**tensor("BYTES", [1], data=["a"]), "name": "y"})
    ),
    "a text as bytes": of_bytes(sized(b"abc \xc3\xa9"), text(10), **BINARY),
    "a text that is not UTF-8": of_bytes(sized(b"\xff"), text(5), **BINARY),
    "a text with a wrong length": of_bytes(sized(b"abc")[:-1], text(6), **BINARY),
    "texts as bytes": of_bytes(sized(b"a") + sized(b"b"), {**text(10), "shape": [2]}, **BINARY),
    "declared bytes": of_bytes(sized(b"\xff\xfe"), text(6), path="/v2/models/bytes/infer", **BINARY),
    "declared bytes in JSON": request(of_json(tensor("BYTES", [1], data=["é"])), "/v2/models/bytes/infer"),
    "declared bytes without a form in JSON": of_bytes(sized(b"\xff"), text(5), path="/v2/models/bytes/infer"),
    "declared text": of_bytes(sized(b"a"), text(5), path="/v2/models/text/infer"),
    "declared text that is not UTF-8": of_bytes(sized(b"\xff"), text(5), path="/v2/models/text/infer"),
    "text for numbers": request(of_json(tensor("BYTES", [1], data=["a"])), "/v2/models/numbers/infer"),
    "converted numbers before others": of_bytes(
        FLOATS + bytes(range(8)),
        {**tensor("FP32", [4], **SIZE), "name": "data"},
        {**tensor("BF16", [4], parameters={"binary_data_size": 8}), "name": "b"},
        path="/v2/models/pair/infer",
        **BINARY,
    ),
    "NaN in an answer": of_bytes(struct.pack("<4f", 1, 2, float("nan"), 4), tensor("FP32", [4], **SIZE)),
    "long JSON": request(of_json(tensor("FP32", [1 << 16], data=[each / 8 for each in range(1 << 16)]))),
    "long JSON that is wrong": request(of_json(tensor("INT8", [1 << 17], data=[1] * ((1 << 17) - 1) + [1000]))),
    "flags as bytes": of_bytes(bytes([0, 1, 2, 255] * 4), tensor("BOOL", [16], **SIZE), **BINARY),
    "many flags as bytes": of_bytes(
        bytes([0, 1]) * (5 << 20),
        tensor("BOOL", [10 << 20], parameters={"binary_data_size": 10 << 20}),
        parameters={"binary_data_output": True},
    ),
    "bytes left": of_bytes(FLOATS + b"x", tensor("FP32", [4], **SIZE)),
    "an unknown output": of_bytes(FLOATS, tensor("FP32", [4], **SIZE), outputs=[{"name": "z"}]),
    "a raw body": request(b'plain \x01 "text" \xc3\xa9', "/v2/models/any/infer", "Content-Type: image/png"),
    "a raw body that is not text": request(b"\xff\xfe", "/v2/models/any/infer", "Content-Type: image/png"),
    "declared": request(of_json(tensor("FP32", [1, 2], data=[1, 2])), "/v2/models/numbers/infer"),
    "a version": request(of_json(tensor("FP32", [1, 2], data=[1, 2])), "/v2/models/numbers/versions/1/infer"),
    "a wrong shape": request(of_json(tensor("FP32", [2], data=[1, 2])), "/v2/models/numbers/infer"),
    "a wrong datatype": request(of_json(tensor("FP64", [1, 2], data=[1, 2])), "/v2/models/numbers/infer"),
    **{
        name: request(of_json(tensor("INT8", [1], data=[1]), parameters=parameters), "/v2/models/urgent/infer")
        for name, parameters in {
            "a timeout and a priority": {"timeout": 60_000_000, "priority": 2},
            "all parameters": {"binary_data_output": True, "priority": 255, "timeout": 10**12},
            "no timeout and no priority": {"timeout": 0, "priority": 0},
            "a timeout of zero": {"timeout": 0},
            "a priority that is too large": {"priority": 256},
            "a negative priority": {"priority": -1},
            "a negative timeout": {"timeout": -1},
            "the longest timeout": {"timeout": 2**63 - 1},
            "a timeout that is too long": {"timeout": 2**63},
            "a timeout as text": {"timeout": "60000000"},
            "a fraction as priority": {"priority": 1.5},
            "a flag as priority": {"priority": True},
            "null as timeout": {"timeout": None},
            "a deadline that has not come": {"deadline": 1e11},
            "a parameter of the model": {"temperature": 1.5},
            "a sequence": {"sequence_id": 7, "sequence_start": True},
        }.items()
    },
    "a priority twice": request(
        b'{"parameters":{"priority":2,"priority":3},"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1]}]}',
        "/v2/models/urgent/infer",
    ),
    "a deadline": request(of_json(tensor("INT8", [1], data=[1]), parameters={"timeout": 5_000_000})),
    "an unknown model": request(of_json(tensor("INT8", [1], data=[1])), "/v2/models/none/infer"),
    "a model in Python": request(of_json(tensor("INT8", [1], data=[1])), "/v2/models/fails/infer"),
    "a page": request(of_json(tensor("INT8", [1], data=[1])), "/v2/models/any/infer", "Origin: http://evil"),
    "two lengths": request(b"{}", "/v2/models/any/infer", "Content-Length: 3"),
    "chunks": chunked(b"2\r\n{}\r\n0\r\n\r\n"),
    "one chunk": chunked(b"%x\r\n%b\r\n0\r\n\r\n" % (len(ONE), ONE)),
    "chunks of a byte": chunked(b"".join(b"01\r\n%c\r\n" % each for each in ONE) + b"000\r\n\r\n"),
    "chunks of a tensor": chunked(
        b"%X\r\n%b\r\n10\r\n%b\r\n0\r\n\r\n" % (len(FLOATS_HEAD), FLOATS_HEAD, FLOATS),
        f"Inference-Header-Content-Length: {len(FLOATS_HEAD)}",
    ),
    "chunks, and the next request": chunked(b"%x\r\n%b\r\n0\r\n\r\n" % (len(ONE), ONE)) + request(ONE),
    "no chunk": chunked(b"0\r\n\r\n"),
    "a chunk with an extension": chunked(b"2\r\n{}\r\n%x;a=b\r\n%b\r\n0\r\n\r\n" % (len(ONE), ONE)),
    "an extension from the first chunk on": chunked(b"%x;a=b\r\n%b\r\n0\r\n\r\n" % (len(ONE), ONE)),
    "trailers": chunked(b"%x\r\n%b\r\n0\r\nX-Sum: 1\r\n\r\n" % (len(ONE), ONE)),
    "several trailers, and the next request": chunked(
        b"%x\r\n%b\r\n0\r\nX-Sum: 1\r\nEmpty:\r\nInference-Header-Content-Length: 3\r\n\r\n" % (len(ONE), ONE)
    )
    + request(ONE),
    "extensions": chunked(b'1;a\r\n%c\r\n%x;b=c;d="e ;f"\r\n%b\r\n0;g=h\r\n\r\n' % (ONE[0], len(ONE) - 1, ONE[1:])),
    "long trailers": of_trailers(b"X: " + b"x" * (1 << 13) + b"\r\n"),
    "longer trailers": of_trailers((b"X: " + b"x" * (1 << 13) + b"\r\n") * 4),
    "trailers that are too long": of_trailers((b"X: " + b"x" * (1 << 13) + b"\r\n") * 9),
    "a trailer without a name": of_trailers(b": 1\r\n"),
    "a trailer without a colon": of_trailers(b"X\r\n"),
    "a trailer in two lines": of_trailers(b"X: 1\r\n 2\r\n"),
    "a trailer with NUL": of_trailers(b"X: \0\r\n"),
    **{
        f"a trailer that is {header}": of_trailers(header.encode() + b"\r\n")
        for header in ("Content-Length: 3", "Transfer-Encoding: gzip", "Connection: close", "Upgrade: h2c")
    },
    "a wrong extension": chunked(b"%x;\0\r\n%b\r\n0\r\n\r\n" % (len(ONE), ONE)),
    "a long extension": chunked(b"%x;a=%b\r\n%b\r\n0\r\n\r\n" % (len(ONE), b"b" * 4000, ONE)),
    "an extension that is too long": chunked(b"%x;a=%b\r\n%b\r\n0\r\n\r\n" % (len(ONE), b"b" * 5000, ONE)),
    "a chunk without a size": chunked(b"2\r\n{}\r\nx\r\n"),
    "a chunk with a long size": chunked(b"2\r\n{}\r\n00000000000000001\r\n}\r\n0\r\n\r\n"),
    "a chunk that is longer than its size": chunked(b"2\r\n{}}\r\n0\r\n\r\n"),
    "gzip": coded("gzip", gzip.compress(ONE)),
    "gzip of two members": coded("x-gzip", gzip.compress(ONE[:9]) + gzip.compress(ONE[9:])),
    "gzip of long JSON": coded("gzip", gzip.compress(of_json(tensor("INT8", [1 << 17], data=[1] * (1 << 17))))),
    "gzip of a tensor": coded(
        "gzip", gzip.compress(FLOATS_HEAD + FLOATS), f"Inference-Header-Content-Length: {len(FLOATS_HEAD)}"
    ),
    "gzip that ends too early": coded("gzip", gzip.compress(ONE)[:-1]),
    "gzip with a rest": coded("gzip", gzip.compress(ONE) + b"x"),
    "gzip with a wrong sum": coded("gzip", gzip.compress(ONE)[:-8] + bytes(8)),
    "gzip of something else": coded("gzip", gzip.compress(b"{")),
    "no gzip": coded("gzip", ONE),
    "gzip in chunks": chunked(
        b"%x\r\n%b\r\n0\r\n\r\n" % (len(GZIPPED), GZIPPED),
        "Content-Encoding: gzip",
    ),
    "deflate": coded("deflate", zlib.compress(ONE)),
    "deflate without zlib": coded("Deflate", zlib.compress(ONE)[2:-4]),
    "no coding": coded("identity", ONE),
    "a coding twice": coded("gzip", gzip.compress(ONE), "Content-Encoding: gzip"),
    "an expectation": request(ONE, "/v2/models/any/infer", "Expect: 100-continue"),
    "an expectation in chunks": chunked(b"%x\r\n%b\r\n0\r\n\r\n" % (len(ONE), ONE), "Expect: 100-Continue"),
    "an unknown expectation": request(ONE, "/v2/models/any/infer", "Expect: more"),
    "an expectation twice": request(ONE, "/v2/models/any/infer", *["Expect: 100-continue"] * 2),
    "no keep-alive": request(of_json(tensor("INT8", [1], data=[1])), "/v2/models/any/infer", "Connection: close"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_both_doors_answer_alike(doors, name):
    python, native = (exchange(door.port, REQUESTS[name]) for door in doors)
    assert native == python
    assert native.startswith(b"HTTP/1.1 ")


@pytest.mark.parametrize(
    "name",
    [
        *(
            "one text",
            "a text as bytes",
            "declared bytes",
            "declared text",
            "brain floats as bytes",
            "NaN in an answer",
        ),
        *("a deadline", "a timeout and a priority", "all parameters", "a timeout of zero"),
        *("declared as brain floats", "brain floats for numbers", "converted numbers before others", "long JSON"),
        *("one chunk", "chunks of a byte", "chunks of a tensor", "chunks, and the next request", "gzip in chunks"),
        *("gzip", "gzip of two members", "gzip of long JSON", "gzip of a tensor", "deflate", "deflate without zlib"),
        *("trailers", "several trailers, and the next request", "long trailers"),
        *("an extension from the first chunk on", "extensions", "a long extension"),
        *("no coding", "an expectation", "an expectation in chunks"),
    ],
)
def test_native_threads_answer_alone(start, monkeypatch, name):
    server = start(MODELS, door="native")
    left: list[object] = []
    monkeypatch.setattr(NativeDoor, "_start", lambda _, running: left.append(running))
    assert exchange(server.port, REQUESTS[name]).startswith(b"HTTP/1.1 200")
    assert not left


@pytest.mark.parametrize("door", ["python", "native"])
def test_a_chunk_with_more_bytes_than_a_body_may_have_is_rejected(start, door):
    server = start({"any": "Identity"}, door=door, max_body=100)
    assert exchange(server.port, chunked(b"2\r\n{}\r\n65\r\n%b\r\n0\r\n\r\n" % bytes(101))).startswith(b"HTTP/1.1 413")


def in_two_steps(port: int, whole: bytes) -> bytes:
    """Send the body when the server asks for it, and return the answer behind that."""
    head, _, body = whole.partition(b"\r\n\r\n")
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client, client.makefile("rb") as stream:
        client.sendall(head + b"\r\nExpect: 100-continue\r\n\r\n")
        assert stream.readline() + stream.readline() == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        return read_answer(stream)


@pytest.mark.parametrize("name", ["floats", "long JSON", "chunks of a byte", "gzip", "no inputs", "trailers"])
def test_both_doors_ask_for_a_body_that_a_client_holds_back(doors, name):
    python, native = (in_two_steps(door.port, REQUESTS[name]) for door in doors)
    assert native == python


@pytest.mark.parametrize("name", ["floats", "chunks of a byte"])
def test_native_threads_ask_for_a_body_that_a_client_holds_back(start, monkeypatch, name):
    server = start(MODELS, door="native")
    left: list[object] = []
    monkeypatch.setattr(NativeDoor, "_start", lambda _, running: left.append(running))
    assert in_two_steps(server.port, REQUESTS[name]).startswith(b"HTTP/1.1 200")
    assert not left


@pytest.mark.parametrize("door", [0, 1])
def test_a_client_that_does_not_wait_for_100_keeps_its_connection(doors, door):
    answers = exchange(doors[door].port, REQUESTS["an expectation"], REQUESTS["an expectation"])
    assert answers.count(b"HTTP/1.1 200") == 2
    assert b"connection: close" not in answers


def test_an_expanded_body_has_no_more_memory_than_open_requests_leave(start):
    """The other one is open while the body expands."""
    server = start({"any": "Identity"}, door="native", max_open=1 << 20)
    body = gzip.compress(b" " * (16 << 20) + ONE)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as other:
        other.sendall(request(b"x" * 100)[:-1])
        while not server.serving.budget.outside():
            pass
        assert exchange(server.port, coded("gzip", body)).startswith(b"HTTP/1.1 503")
        assert server.serving.budget.outside() == 100


def test_an_expanded_body_keeps_no_more_memory_than_it_has(start, monkeypatch):
    monkeypatch.setattr(native_door, "MANY_CORES", 1 << 20)  # one thread reads what comes, in order
    server = start({"any": "Identity", "slow": "Sleep(1s)"}, door="native", max_open=1 << 20)
    slow = coded("gzip", GZIPPED).replace(b"any", b"slow", 1)
    size = 300_000
    with contextlib.ExitStack() as opened:
        for _ in range(8):  # with a piece each, they would have 2 MiB
            client = opened.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(slow)
            assert exchange(server.port, coded("gzip", GZIPPED)).startswith(b"HTTP/1.1 200")  # expanded behind that
        assert server.serving.budget.outside() < size
        sent = of_bytes(bytes(size), tensor("UINT8", [size], parameters={"binary_data_size": size}), **BINARY)
        assert exchange(server.port, sent).startswith(b"HTTP/1.1 200")


def test_a_priority_reaches_the_pipe(doors):
    assert b"with a priority" in exchange(doors[1].port, REQUESTS["a timeout and a priority"])
    assert b"without" in exchange(doors[1].port, REQUESTS["a timeout of zero"])


def test_a_timeout_ends_a_request_in_both_doors(doors):
    sent = request(
        of_json(tensor("INT8", [1], data=[1]), parameters={"timeout": 20_000}, id="late"), "/v2/models/slow/infer"
    )
    for door in doors:  # the rest of the text says at which node it was then
        answer = exchange(door.port, sent)
        assert answer.startswith(b"HTTP/1.1 504 ")
        assert b"the request timed out: its limit of " in answer


@pytest.mark.parametrize("name", ["long JSON", "gzip of long JSON"])
def test_a_client_that_leaves_while_its_body_is_read_leaves_nothing(start, name):
    server = start({"any": "Identity"}, door="native")
    for _ in range(10):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(REQUESTS[name])
    assert exchange(server.port, REQUESTS[name]).startswith(b"HTTP/1.1 200")
    while server.serving.budget.outside():
        assert server.get("/v2/health/live")[0] == 200


def test_a_client_that_leaves_gives_no_memory_back_before_the_worker_has_read_its_json(start, monkeypatch):
    monkeypatch.setattr(native_door, "MANY_CORES", 1 << 20)  # one thread does all that follows, in order
    server = start({"any": "Identity"}, door="native")
    size = 1 << 24
    other = of_bytes(bytes(size), tensor("UINT8", [size], parameters={"binary_data_size": size}))
    sent = REQUESTS["long JSON"]
    open_bytes = server.serving.budget.outside
    rendered = size + MAX_NUMBER * size  # bytes of the other request, while its answer is made
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as first:
        first.sendall(other)
        while not server.get("/v2/models/any/stats")[1]["model_stats"][0]["inference_stats"]["success"]["count"]:
            pass  # then the worker renders its answer
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(sent)
            both = rendered + 9 * (len(sent) - sent.index(b"\r\n\r\n") - 4)
            while open_bytes() < both and not select.select([first], [], [], 0)[0]:
                pass
        while (left := open_bytes()) >= both:
            pass
        assert left < rendered  # the other answer is made: the worker is done with that
    while open_bytes():
        assert server.get("/v2/health/live")[0] == 200


def test_requests_in_one_connection_go_to_both_doors_in_turn(doors):
    sent = [REQUESTS[name] for name in ("floats", "metadata", "bytes both ways", "nested", "probe", "a version")] * 3
    python, native = (exchange(door.port, *sent) for door in doors)
    assert native == python
    assert native.count(b"HTTP/1.1 200 OK") == len(sent)


@pytest.mark.parametrize("name", ["bytes both ways", "chunks of a tensor", "gzip in chunks", "trailers", "extensions"])
def test_a_request_may_come_in_any_pieces(doors, name):
    whole = REQUESTS[name]
    expected = exchange(doors[0].port, whole)
    for size in (1, 7, 100, len(whole) - 1):
        pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
        assert exchange(doors[1].port, *pieces, answers=1) == expected


def test_requests_that_arrive_in_pieces_behind_each_other_keep_their_order(doors):
    """Also while earlier ones, which have been received already, are not read yet."""
    bodies = [of_json(tensor("INT8", [1], data=[1]), id=str(number)) for number in range(300)]
    whole = b"".join(map(request, bodies))
    pieces = [whole[start : start + 1000] for start in range(0, len(whole), 1000)]
    found = exchange(doors[1].port, *pieces, answers=300)
    assert [int(each) for each in re.findall(rb'"id":"(\d+)"', found)] == [*range(300)]


def test_a_large_tensor_goes_through_and_back(doors):
    data = np.arange(1 << 20, dtype=np.float32).tobytes()
    entry = tensor("FP32", [1 << 20], parameters={"binary_data_size": len(data)})
    answer = exchange(doors[1].port, of_bytes(data, entry, **BINARY))
    assert answer.endswith(data)


def test_requests_of_the_native_door_are_counted(start):
    server = start(MODELS, door="native")
    for _ in range(3):
        exchange(server.port, REQUESTS["declared"])
    _, found = server.get("/v2/models/numbers/stats")
    assert found["model_stats"][0]["inference_stats"]["success"]["count"] == 3


def test_a_model_that_is_replaced_answers_from_then_on(start):
    server = start({"any": "Identity"}, door="native")
    first = exchange(server.port, REQUESTS["floats"])
    server.serving.rounder.submit("any", "TestFails")
    assert exchange(server.port, REQUESTS["floats"]).startswith(b"HTTP/1.1 500")
    server.serving.rounder.submit("any", "Identity")
    assert exchange(server.port, REQUESTS["floats"]) == first


def test_a_model_that_is_removed_while_python_renders_its_answer_is_still_known(start, monkeypatch):
    server = start({"any": "Identity", "other": "Identity"}, door="native")
    rendered = NativeDoor._rendered

    async def late(door: NativeDoor, *given: object) -> bytes:
        await asyncio.to_thread(server.serving.rounder.remove, "any")
        for _ in range(3):
            door.count()
        return await rendered(door, *given)

    monkeypatch.setattr(NativeDoor, "_rendered", late)
    assert exchange(server.port, REQUESTS["a long text"]).startswith(b"HTTP/1.1 200")


def test_an_answer_that_cannot_be_made_is_a_fault_and_keeps_no_client_waiting(start, monkeypatch):
    server = start({"any": "Identity"}, door="native")
    monkeypatch.setattr(NativeDoor, "_bytes_of", lambda *_: 1 / 0)
    assert exchange(server.port, REQUESTS["a long text"]).startswith(b"HTTP/1.1 500")


def test_a_request_that_python_has_no_memory_for_ends_with_its_connection(start, monkeypatch):
    server = start({"any": "Identity"}, door="native")
    failures = [MemoryError]

    def loads(text: bytes) -> object:
        if b'"keys"' in text and failures:
            raise failures.pop()
        return json.loads(text)

    monkeypatch.setattr(native_door, "json", SimpleNamespace(loads=loads, dumps=json.dumps))
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(REQUESTS["a long text"])
        assert client.recv(1) == b""
    assert exchange(server.port, REQUESTS["a long text"]).startswith(b"HTTP/1.1 200")


def test_a_server_that_has_no_memory_for_its_statistics_goes_on(start, monkeypatch):
    failed = threading.Event()

    def count(door: NativeDoor) -> None:
        if not failed.is_set():
            failed.set()
            raise MemoryError

    monkeypatch.setattr(NativeDoor, "count", count)
    server = start({"any": "Identity"}, door="native")
    assert failed.wait(60)
    for name in ("floats", "metadata", "floats"):
        assert exchange(server.port, REQUESTS[name]).startswith(b"HTTP/1.1 200")
    assert server._thread.is_alive()


def test_a_connection_for_which_there_is_no_descriptor_stays_in_python(start, monkeypatch):
    server = start({"any": "Identity"}, door="native")

    def dup(_: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "dup", dup)
    answers = exchange(server.port, REQUESTS["metadata"], REQUESTS["floats"])
    assert answers.count(b"HTTP/1.1 200") == 2


def test_an_idle_connection_ends_when_the_server_stops(start):
    server = start({"any": "Identity"}, door="native")
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
        server.stop()
        assert client.recv(1) == b""


def test_clients_beside_each_other_get_their_own_answers(doors):
    wrong: list[bytes] = []

    def client(number: int) -> None:
        data = struct.pack("<4i", *[number] * 4)
        sent = of_bytes(data, tensor("INT32", [4], **SIZE), **BINARY)
        answers = exchange(doors[1].port, *[sent, REQUESTS["metadata"]] * 20)
        if answers.count(data) != 20:
            wrong.append(answers)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(1, 9)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert not wrong


def test_the_native_door_rejects_tls():
    parser = argparse.ArgumentParser()
    add_serve(parser.add_subparsers())
    given = parser.parse_args(["serve", "Identity", "--door", "native", "--tls-cert", "c.pem", "--tls-key", "k.pem"])
    with pytest.raises(hami.ConfigError, match="--door native"):
        given.run(given)


def test_a_request_that_arrives_with_the_end_of_its_client_is_answered(start):
    """One that waits in the kernel behind a request that runs, too."""
    server = start({"any": "Identity", "slow": "Sleep(100ms)"})
    slow = request(of_json(tensor("INT8", [1], data=[1])), "/v2/models/slow/infer")
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client, client.makefile("rb") as stream:
        client.sendall(slow)
        server.get("/v2/health/live")  # the first request runs
        client.sendall(REQUESTS["floats"])
        client.shutdown(socket.SHUT_WR)
        assert stream.read().count(b"HTTP/1.1 200 OK\r\n") == 2


@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="AddressSanitizer ends such a program itself")
def test_an_answer_for_which_there_is_too_little_memory_does_not_end_the_server(tmp_path):
    port, count = free_port(), 1 << 23
    elements = tensor("FP32", [count], parameters={"binary_data_size": 4 * count})
    sent = of_bytes(np.linspace(1, 2, count, dtype=np.float32).tobytes(), elements, path="/v2/models/Identity/infer")
    command = [sys.executable, "-m", "hami", "serve", "Identity", "--http", str(port), "--max-open-mib", "4096"]
    with running(command, tmp_path, port) as process:
        while ask(port, "/v2/health/ready")[0] != 200:
            assert process.poll() is None
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[0])
        size = pages * resource.getpagesize() + len(sent) + (100 << 20)  # the JSON has more
        resource.prlimit(process.pid, resource.RLIMIT_AS, (size, size))
        assert exchange(port, sent).startswith(b"HTTP/1.1 500")
        assert ask(port, "/v2/health/live") == (200, {"live": True})


def test_a_page_of_an_allowed_origin_gets_the_headers_of_cors_with_a_token_too(tmp_path):
    """The native door knows the token, and must not answer a browser itself."""
    (tmp_path / "token").write_text("secret")
    port = free_port()
    command = [sys.executable, "-m", "hami", "serve", "Identity", "--http", str(port), "--token-file", "token"]
    with running([*command, "--cors", "https://app.example.org"], tmp_path, port):
        headers = ["Origin: https://app.example.org", "Authorization: Bearer secret"]
        sent = request(of_json(tensor("INT8", [1], data=[1])), "/v2/models/Identity/infer", *headers)
        assert b"access-control-allow-origin: https://app.example.org\r\n" in exchange(port, sent)


def test_a_client_that_leaves_a_request_which_came_back_from_python_is_noticed(start):
    steps = {f"n{each}": {"backend": "Sleep(50ms)", "next": f"n{each + 1}"} for each in range(400)}  # 20 s, or until
    steps["n400"] = {"backend": "Identity"}  # it is cancelled
    server = start({"any": "Identity", "slow": {"source": steps}}, door="native", times=Times(half_closed=0.01))
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(REQUESTS["metadata"])
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
        client.sendall(request(of_json(tensor("INT8", [1], data=[1])), "/v2/models/slow/infer"))
    while True:
        stats = server.get("/v2/models/slow/stats")[1]["model_stats"][0]["inference_stats"]
        if stats["success"]["count"] + stats["fail"]["count"]:
            break
    assert stats["fail"]["count"] == 1


def test_a_connection_counts_until_python_has_it(start):
    """Else a server that stops could end before it has answered."""
    server = start({"any": "Identity"}, door="native")
    server.get("/v2/health/live")  # it has started
    native = server._server._native

    async def look() -> list[int]:
        while native.connections:
            await asyncio.sleep(0)
        (first, given), (other, given_too) = socket.socketpair(), socket.socketpair()
        with first, other:
            native.add(given)
            found = [native.connections]
            first.sendall(REQUESTS["metadata"])
            assert select.select([native._event], [], [], 60)[0]  # Python, which is here, may take it
            native.add(given_too)
            other.sendall(REQUESTS["probe"])
            assert other.recv(1 << 16).startswith(b"HTTP/1.1 200")  # the native door has gone on
            return [*found, native.connections]

    assert asyncio.run_coroutine_threadsafe(look(), native._loop).result(60) == [1, 2]

"""Bodies of requests over HTTP in content codings and transfer codings: those of the RFCs, and others."""

from __future__ import annotations

import gzip
import http.client
import json
import zlib
from contextlib import closing

import pytest

TENSOR = {"name": "x", "datatype": "INT32", "shape": [2000], "data": [1] * 2000}


@pytest.mark.parametrize(
    ("encoding", "encode"),
    [
        ("gzip", lambda body: gzip.compress(body[:9]) + gzip.compress(b"") + gzip.compress(body[9:])),
        ("gzip", lambda body: b"".join(gzip.compress(body[place : place + 1]) for place in range(len(body)))),
        ("x-gzip", gzip.compress),
        ("GZip ,, identity", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", lambda body: zlib.compress(body)[2:-4]),
        ("identity", bytes),
        ("", bytes),
    ],
    ids=["members", "many members", "x-gzip", "a list", "deflate", "deflate without zlib", "identity", "empty"],
)
def test_bodies_in_each_valid_content_coding_are_read(start, encoding, encode):
    """A file of gzip is a series of members (RFC 1952, 2.2)."""
    body = json.dumps({"inputs": [TENSOR]}).encode()
    server = start({"any": "Identity"})
    status, answer = server.post("/v2/models/any/infer", encode(body), {"Content-Encoding": encoding})
    assert (status, answer["outputs"][0]["data"]) == (200, TENSOR["data"])


@pytest.mark.parametrize(
    ("encoding", "encode", "status", "message"),
    [
        ("gzip", lambda body: gzip.compress(body) + b"junk", 400, "member 2 of the body is not valid gzip"),
        ("gzip", lambda body: gzip.compress(body) + b"\0" * 40_000, 400, "member 2 of the body is not valid gzip"),
        ("gzip", lambda body: gzip.compress(body) + gzip.compress(body)[:-1], 400, "the body is truncated gzip"),
        ("gzip", lambda body: gzip.compress(body) + gzip.compress(b" " * (1 << 20)), 413, "the expanded body has more"),
        ("gzip", lambda body: gzip.compress(b"") * 70_000, 400, "the body has more than 65536 members of gzip"),
        ("gzip", lambda body: body, 400, "the body is not valid gzip"),
        ("deflate", lambda body: zlib.compress(body) + b"x", 400, "the body has bytes after the end of its deflate"),
        (
            "deflate",
            lambda body: zlib.compress(body)[2:-4] + b"x",
            400,
            "the body has bytes after the end of its deflate",
        ),
        ("deflate", lambda body: zlib.compress(body)[2:-6], 400, "the body is truncated deflate"),
        ("deflate", lambda body: body, 400, "the body is not valid deflate"),
        ("deflate", lambda body: zlib.compress(body) * 2, 400, "the body has bytes after the end of its deflate"),
        ("br", bytes, 415, "the Content-Encoding is br; this server accepts one of gzip and deflate"),
        ("gzip, gzip", lambda body: gzip.compress(gzip.compress(body)), 415, "the Content-Encoding is gzip, gzip;"),
        ('deflate, x"y', bytes, 415, 'the Content-Encoding is deflate, x"y;'),
    ],
)
def test_bodies_in_no_valid_content_coding_are_rejected(start, encoding, encode, status, message):
    server = start({"any": "Identity"}, max_body=1 << 21 if "members of" in message else 100_000)
    body = encode(json.dumps({"inputs": [TENSOR]}).encode())
    found, headers, answer = server.call("POST", "/v2/models/any/infer", body, {"Content-Encoding": encoding})
    assert (found, message in answer["error"]) == (status, True), answer
    assert headers["Accept-Encoding"] == ("gzip, deflate" if status == 415 else None)


@pytest.mark.parametrize("fields", [["gzip, chunked"], ["gzip", "chunked"], ["x-own", "gzip , chunked"]], ids=str)
def test_a_transfer_coding_that_is_not_known_is_not_implemented(start, fields):
    """RFC 9112, 6.1."""
    server = start({"any": "Identity"})
    body = gzip.compress(json.dumps({"inputs": [TENSOR]}).encode())
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        connection.putrequest("POST", "/v2/models/any/infer")
        for value in fields:
            connection.putheader("Transfer-Encoding", value)
        connection.endheaders(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        answer = connection.getresponse()
        text = f"the Transfer-Encoding is {', '.join(fields).replace(' ,', ',')}; this server accepts chunked"
        assert (answer.status, json.loads(answer.read())["error"].startswith(text)) == (501, True)

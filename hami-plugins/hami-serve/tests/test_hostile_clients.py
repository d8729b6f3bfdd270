"""Clients that send slowly, too much or nothing: each loses its connection, and the others are served."""

from __future__ import annotations

import asyncio
import errno
import http.client
import json
import resource
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest

from hami_serve.http_times import Times

REQUEST = {"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}]}
BODY = json.dumps(REQUEST).encode()
HEAD = b"POST /v2/models/any/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"


def answer_of(port: int, data: bytes) -> tuple[int, str]:
    """Send a part of a request, and return the status and the error with which the server ends the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(data)
        answer = http.client.HTTPResponse(client)
        answer.begin()
        assert answer.headers["connection"] == "close"
        return answer.status, json.loads(answer.read())["error"]


@pytest.mark.parametrize(
    ("limit", "data", "error"),
    [
        ("head", b"POS", "the request did not continue for 0.01 s"),
        ("head", HEAD, "the request did not continue for 0.01 s"),
        ("body", HEAD + b"\r\n", "the request did not continue for 0.01 s"),
        ("body", HEAD + b"\r\n{", "the request did not continue for 0.01 s"),
        ("rate_after", HEAD + b"\r\n{", "the body came with less than 16384 bytes per second"),
    ],
    ids=["in the first line", "in the head", "before the body", "in the body", "a byte now and then"],
)
def test_a_client_that_sends_slowly_is_answered_with_408(start, limit, data, error):
    server = start({"any": "Identity"}, times=Times(**{limit: 0.01}))
    assert answer_of(server.port, data) == (408, error)
    assert server.post("/v2/models/any/infer", REQUEST)[0] == 200


def test_a_client_that_sends_nothing_loses_its_connection(start):
    server = start({"any": "Identity"}, times=Times(idle=0.01))
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        assert client.recv(1) == b""


@pytest.mark.parametrize("door", ["native", "python"])
def test_a_client_that_sends_no_further_request_loses_its_connection(start, door):
    server = start({"any": "Identity"}, times=Times(idle=0.01), door=door)
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as client,
        client.makefile("rb") as stream,
    ):
        client.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert stream.read().endswith(b'{"live": true}')  # and then the end of the connection


def test_a_request_that_runs_for_long_keeps_its_connection(start, gate):
    slow = gate("long")
    server = start({"slow": {"backend": "TestGate", "gate": "long"}}, times=Times(idle=0.01))
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", "/v2/models/slow/infer", json.dumps(REQUEST))
    assert slow.begun.acquire(timeout=60)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as other:
        assert other.recv(1) == b""  # the server has looked for clients that are overdue
    slow.opened.set()
    assert connection.getresponse().status == 200
    connection.close()


def test_a_head_without_end_is_answered_with_431(start):
    server = start({"any": "Identity"})
    assert answer_of(server.port, HEAD + b"X: " + b"x" * (1 << 16)) == (
        431,
        "the head of the request has more than 65536 bytes",
    )
    assert server.post("/v2/models/any/infer", REQUEST)[0] == 200


@pytest.mark.parametrize(
    ("head", "status", "error"),
    [
        (b"GET /v2 HTTP/1.1\r\n\r\n", 400, "a request in HTTP/1.1 has one header Host, got 0"),
        (b"GET /v2 HTTP/1.1\r\nHost: evil\r\nhost: x\r\n\r\n", 400, "a request in HTTP/1.1 has one header Host, got 2"),
        (b"GET /v2 HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", 400, "a request in HTTP/1.1 has one header Host, got 2"),
        (b"GET /v2 HTTP/2.0\r\nHost: x\r\n\r\n", 505, "the request is in HTTP/2.0, and this server speaks HTTP/1.1"),
        (  # also wrong in a way that the parser finds later
            b"POST /v2 HTTP/1.1\r\nTransfer-Encoding: identity\r\n\r\n",
            400,
            "a request in HTTP/1.1 has one header Host, got 0",
        ),
    ],
)
def test_a_head_of_another_version_or_without_one_host_is_rejected(start, head, status, error, caplog):
    """RFC 9112, 3.2: a proxy could understand such a request as one for another host."""
    server = start({"any": "Identity"})
    assert answer_of(server.port, head) == (status, error)
    assert server.post("/v2/models/any/infer", REQUEST)[0] == 200
    assert not [record for record in caplog.records if record.exc_info]  # once, and without a traceback


def test_space_after_the_value_of_a_header_does_not_belong_to_it(start):
    """RFC 9110, 5.5."""
    server = start({"any": "Identity"})
    body = json.dumps(REQUEST)
    headers = {"Content-Length": f"{len(body)} \t", "Inference-Header-Content-Length": f"{len(body)}  "}
    assert server.post("/v2/models/any/infer", body.encode(), headers)[0] == 200
    headers = {"Content-Length": f"{len(body)}", "Expect": "100-continue ", "Content-Encoding": "identity "}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", "/v2/models/any/infer", headers=headers)
    assert connection.sock.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.send(body.encode())
    assert connection.getresponse().status == 200
    connection.close()


def test_a_million_inputs_are_rejected(start):
    server = start({"any": "Identity"})
    status, answer = server.post("/v2/models/any/infer", b'{"inputs": [' + b"{}," * 999_999 + b"{}]}")
    assert (status, answer) == (400, {"error": "a request has at most 1024 inputs, got 1000000"})
    assert server.post("/v2/models/any/infer", REQUEST)[0] == 200


@pytest.mark.parametrize("size", [100, 5 << 20])
def test_a_body_may_arrive_in_any_pieces(start, size):
    server = start({"any": "Identity"})

    entry = {"name": "x", "datatype": "INT8", "shape": [size], "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    body = head + bytes(range(256)) * (size // 256 + 1)
    body = body[: len(head) + size]
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    pieces = [body[:10], body[10:11], body[11 : len(body) // 2], body[len(body) // 2 :]]
    headers = {"Inference-Header-Content-Length": str(len(head))}
    connection.request("POST", "/v2/models/any/infer", iter(pieces), headers, encode_chunked=True)
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.read().endswith(body[len(head) :])
    connection.close()


def test_requests_that_are_sent_at_once_are_answered_in_their_order(start):
    server = start({"any": "Identity"})
    request = b""
    for number in range(5):
        body = json.dumps({**REQUEST, "id": str(number)}).encode()
        request += b"POST /v2/models/any/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    ids = []
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(request)
        with client.makefile("rb") as stream:
            for _ in range(5):
                length = 0
                while (line := stream.readline()) != b"\r\n":
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.partition(b":")[2])
                ids.append(json.loads(stream.read(length))["id"])
    assert ids == ["0", "1", "2", "3", "4"]


def test_ten_thousand_idle_connections_do_not_keep_others_from_being_served(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = 10_000 if hard == resource.RLIM_INFINITY else min(10_000, hard - 200)
    if count < 1000:
        pytest.skip(f"needs 1000 open files; the limit of this process is {hard}")
    command = [sys.executable, "-m", "hami", "serve", "Identity", "--http", "0"]
    with ExitStack() as opened:
        process = opened.enter_context(subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True))
        opened.callback(process.kill)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 200), hard))
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        port = int(process.stdout.readline().rpartition(":")[2])
        for number in range(count):
            opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            if number % 1000 == 0 or number == count - 1:  # the server has accepted those before
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request("POST", "/v2/models/Identity/infer", json.dumps(REQUEST))
                assert connection.getresponse().status == 200
                connection.close()
        process.terminate()
        assert process.wait(60) == 0


def test_a_request_that_was_rejected_gets_no_second_answer_for_the_rest_of_its_body(start):
    """A client would take it for the answer to its next request."""
    server = start({"any": "Identity"})
    head = b"POST /v2/nothing HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    for rest in (b"no size\r\n", b"5\r\nabcdefgh", b"1;" + b"x" * 5000):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client, client.makefile("rb") as got:
            client.sendall(head)
            client.sendall(rest)
            answer = got.read()
        assert answer.startswith(b"HTTP/1.1 404")
        assert answer.count(b"HTTP/1.1 ") == 1, answer


@pytest.mark.parametrize("door", ["native", "python"])
def test_a_connection_goes_on_after_trailers_that_would_end_it_as_headers(start, door):
    """RFC 9110, 6.5.1: trailers that concern the connection are ignored."""
    server = start({"any": "Identity"}, door=door)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client, client.makefile("rb") as got:
        body = b"%x\r\n%b\r\n0\r\nConnection: close\r\n\r\n" % (len(BODY), BODY)
        client.sendall(b"POST /v2/models/any/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
        client.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert got.read().count(b"HTTP/1.1 200 OK") == 2


@pytest.mark.parametrize("door", ["native", "python"])
@pytest.mark.parametrize(("version", "asks"), [("1.0", 0), ("1.1", 1)])
def test_only_a_client_of_http_1_1_is_asked_for_the_body_that_it_holds_back(start, door, version, asks):
    """RFC 9110, 10.1.1: the answer 100 does not exist in HTTP/1.0."""
    server = start({"any": "Identity"}, door=door, times=Times(body=0.01))
    lines = f"POST /v2/models/any/infer HTTP/{version}", "Host: x", "Content-Length: 9", "Expect: 100-continue", "", ""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client, client.makefile("rb") as got:
        client.sendall("\r\n".join(lines).encode())
        answer = got.read()
    assert answer.count(b"HTTP/1.1 100 Continue\r\n\r\n") == asks
    assert answer.count(b"HTTP/1.1 408 ") == 1


def test_a_length_of_the_json_part_that_is_given_twice_is_rejected(start):
    server = start({"any": "Identity"})
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client, client.makefile("rb") as got:
        lines = b"Host: x\r\nInference-Header-Content-Length: 2\r\nInference-Header-Content-Length: 3\r\n"
        client.sendall(
            b"POST /v2/models/any/infer HTTP/1.1\r\nConnection: close\r\n%bContent-Length: 3\r\n\r\n{} " % lines
        )
        answer = got.read()
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"Inference-Header-Content-Length is given 2 times: ['2', '3']; send it once" in answer


def test_a_client_that_has_reset_a_rejected_connection_is_not_a_fault(start, monkeypatch, caplog):
    def is_gone(_: object) -> None:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    monkeypatch.setattr(asyncio.selector_events._SelectorSocketTransport, "write_eof", is_gone)
    server = start({"any": "Identity"}, door="native")  # which passes on what has come
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(b"nonsense\r\n\r\n")
        try:
            while client.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass
    assert not [record for record in caplog.records if record.name == "asyncio"]

"""`hami_serve_answers_total` counts every answer by its status, also those that no application and no handler sees."""

from __future__ import annotations

import http.client
import json
import socket
import struct
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families
from server_process import free_port, running

from hami_serve.http_times import Times

REQUEST = {"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}]}


def counted(port: int) -> dict[tuple[str, str], float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    (answers,) = (family for family in families if family.name == "hami_serve_answers")
    return {(each.labels["protocol"], each.labels["code"]): each.value for each in answers.samples}


REJECTED = {
    "400": b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
    "405": b"CONNECT other:1 HTTP/1.1\r\nHost: other\r\n\r\n",
    "431": b"GET / HTTP/1.1\r\nHost: x\r\nLong: " + b"x" * 70_000,
}


@pytest.mark.parametrize("code", REJECTED)
def test_a_request_that_the_connection_rejects_is_counted(start, code):
    server = start({"any": "Identity"})
    before = counted(server.port).get(("HTTP", code), 0)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(REJECTED[code])
        assert client.makefile("rb").readline().split()[1] == code.encode()
    assert counted(server.port)["HTTP", code] == before + 1


WITHOUT_BODY = b"POST /v2/models/any/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"


def of_clients(port: int) -> list[float]:
    """Return how many requests came too slowly, and how many clients left theirs."""
    found = counted(port)
    return [found.get(("HTTP", code), 0) for code in ("408", "499")]


@pytest.mark.parametrize("door", ["native", "python"])
@pytest.mark.parametrize("begin", [b"POST /v2", WITHOUT_BODY])
def test_a_request_that_does_not_go_on_is_counted(start, begin, door):
    server = start({"any": "Identity"}, times=Times(head=0.01, body=0.01), door=door)
    slow, left = of_clients(server.port)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(begin)
        assert client.makefile("rb").readline().split()[1] == b"408"
    assert of_clients(server.port) == [slow + 1, left]


@pytest.mark.parametrize("door", ["native", "python"])
def test_a_request_whose_client_leaves_is_counted(start, gate, door):
    long = gate("left")
    server = start({"any": "Identity", "long": {"backend": "TestGate", "gate": "left"}}, door=door)
    body = json.dumps(REQUEST).encode()
    slow, left = of_clients(server.port)
    with leaving(server.port) as client:
        client.sendall(WITHOUT_BODY.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
        assert client.makefile("rb").readline().split()[1] == b"100"  # the server has read it
    with leaving(server.port) as client:
        client.sendall(
            b"POST /v2/models/long/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        assert long.begun.acquire(timeout=60)
    assert long.cancelled.wait(60)
    end = time.monotonic() + 60
    while (found := of_clients(server.port))[1] < left + 2:  # clients of earlier tests may be counted late
        assert time.monotonic() < end
    assert found[0] == slow


@contextmanager
def leaving(port: int) -> Iterator[socket.socket]:
    """Yield a connection that ends by a reset."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        yield client
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_answers_of_both_protocols_are_counted_once(tmp_path):
    grpc = pytest.importorskip("grpc", reason="needs the extra grpc")
    from hami_serve.grpc_messages import message

    shape = {"name": "x", "datatype": "INT8", "shape": [1]}

    def infer(channel, size: int) -> object:
        request = message("ModelInferRequest")(model_name="Identity", inputs=[{**shape, "shape": [size]}])
        request.raw_input_contents.append(b"\0" * size)
        method = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer", lambda each: each.SerializeToString()
        )
        return method.future(request, timeout=60).code()

    port, grpc_port = free_port(), free_port()
    command = [sys.executable, "-m", "hami", "serve", "Identity", "--max-request-mib", "1"]
    with (
        running([*command, "--http", str(port), "--grpc", str(grpc_port)], tmp_path, port),
        grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel,
    ):
        assert infer(channel, 1) is grpc.StatusCode.OK
        assert infer(channel, 2 << 20) is grpc.StatusCode.RESOURCE_EXHAUSTED
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            for body, status in ((json.dumps(REQUEST), 200), ("no JSON", 400), (" " * (2 << 20), 413)):
                connection.request("POST", "/v2/models/Identity/infer", body)
                answer = connection.getresponse()
                answer.read()
                assert answer.status == status
        found = counted(port)
        while ("gRPC", "RESOURCE_EXHAUSTED") not in found:  # a moment after its answer
            found = counted(port)
    expected = {("gRPC", "OK"): 1, ("gRPC", "RESOURCE_EXHAUSTED"): 1, ("HTTP", "400"): 1, ("HTTP", "413"): 1}
    assert {key: found[key] for key in expected} == expected

"""What a connection can cost: heads, trailers, pipelined requests, bodies without a token, clients that never read."""

from __future__ import annotations

import gc
import gzip
import http.client
import json
import re
import socket
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from hami_serve.budget import Budget
from hami_serve.http_times import Times

TOKEN = "secret"
REQUEST = json.dumps({"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}]}).encode()
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"POST /v2/models/Identity/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
ALLOWED = b"Authorization: Bearer secret\r\n"
BOUND = 24 << 20  # bytes by which the server may grow


class Server:
    """A server in a process of its own, whose memory can be read."""

    def __init__(self, folder: Path, *options: str) -> None:
        (folder / "token").write_text(TOKEN)
        command = [sys.executable, "-m", "hami", "serve", "Identity", "--http", "0", "--token-file", "token", *options]
        self.process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        self.port = int(re.search(r"http://[^:]+:(\d+)", line)[1])
        grpc = re.search(r"grpc://[^:]+:(\d+)", line)
        self.grpc = int(grpc[1]) if grpc else None

    def memory(self) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", text)[1]) << 10  # the most that it ever had

    def status(self) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", "/v2/models/Identity/infer", REQUEST, {"Authorization": f"Bearer {TOKEN}"})
        status = connection.getresponse().status
        connection.close()
        return status

    def close(self) -> None:
        self.process.kill()
        self.process.wait(60)
        self.process.stdout.close()


@pytest.fixture
def limited(tmp_path):
    server = Server(tmp_path)
    assert server.status() == 200
    yield server
    assert server.status() == 200
    server.close()


def flood(server: Server, first: bytes, again: bytes, times: int) -> bytes:
    """Send as long as the server reads; return what it answers."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.settimeout(3)
        try:
            client.sendall(first)
            for _ in range(times):
                client.sendall(again)
        except OSError:  # it reads no more
            pass
        client.settimeout(60)
        try:
            return client.recv(1 << 16)
        except OSError:
            return b""


@pytest.mark.parametrize("token", [ALLOWED, b""], ids=["with the token", "without it"])
def test_trailers_are_bounded(limited, token):
    before = limited.memory()
    trailer = b"".join(b"X%d: %s\r\n" % (number, b"t" * 1000) for number in range(60))
    flood(limited, CHUNKED + token + b"\r\n5\r\n[1,2]\r\n0\r\n", trailer, 1000)
    assert limited.memory() - before < BOUND


def test_extensions_of_a_chunk_are_bounded(limited):
    before = limited.memory()
    flood(limited, CHUNKED + ALLOWED + b"\r\n5;", b"x=" + b"y" * 60_000 + b";", 1000)
    assert limited.memory() - before < BOUND


@pytest.mark.parametrize("step", [1, 7, 1 << 16])
@pytest.mark.parametrize("size", [4096, 4097])
def test_the_line_before_a_chunk_is_bounded(start, size, step):
    """Also behind other chunks of the same packet."""
    server = start({"any": "Identity"})
    head, rest = b"%x;a=b\r\n%b\r\n0003;" % (len(REQUEST) - 3, REQUEST[:-3]), b"\r\n%b\r\n0\r\n\r\n" % REQUEST[-3:]
    data = CHUNKED.replace(b"Identity", b"any") + b"\r\n" + head + b"x" * (size - 7) + rest
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(data), step):
            client.send(data[at : at + step])
        answer = http.client.HTTPResponse(client)
        answer.begin()
        assert answer.status == (200 if size == 4096 else 431), answer.read()


def test_pipelined_requests_wait_unread(limited):
    before = limited.memory()
    flood(limited, b"", LIVE * 1500, 200)
    assert limited.memory() - before < BOUND


def test_all_pipelined_requests_are_answered(limited):
    with socket.create_connection(("127.0.0.1", limited.port), timeout=60) as client, client.makefile("rb") as stream:
        client.sendall(LIVE * 2000)
        answers = 0
        while answers < 2000 and (line := stream.readline()):
            answers += b"HTTP/1.1 200" in line
    assert answers == 2000


def test_a_body_is_not_read_without_the_token(limited):
    before = limited.memory()
    size = 60 << 20
    head = b"POST /v2/models/Identity/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size
    answers = [flood(limited, head, b"\0" * (1 << 20), 60) for _ in range(5)]
    assert all(answer.startswith(b"HTTP/1.1 401") for answer in answers)
    assert limited.memory() - before < BOUND


def test_a_head_of_one_packet_is_bounded(limited):
    head = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 100_000 + b"\r\n\r\n"
    assert flood(limited, head, b"", 0).startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize("door", ["native", "python"])
def test_a_client_that_takes_no_answer_loses_its_connection(start, door):
    server = start({"any": "Identity"}, times=Times(write=0.01), door=door)
    size = 24 << 20
    entry = {"name": "x", "datatype": "INT8", "shape": [size], "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    lines = f"POST /v2/models/any/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(head) + size}\r\n"
    lines += f"Inference-Header-Content-Length: {len(head)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(lines.encode() + head + b"\0" * size)
        while True:  # until the server takes no more
            try:
                client.sendall(b" " * (1 << 20))
            except OSError:
                break


def test_trailers_are_no_headers(start):
    server = start({"any": "Identity"})
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        body = b"%x\r\n%b\r\n0\r\nInference-Header-Content-Length: 3\r\nX: y\r\n\r\n" % (len(REQUEST), REQUEST)
        client.sendall(CHUNKED.replace(b"Identity", b"any") + b"\r\n" + body)
        answer = http.client.HTTPResponse(client)
        answer.begin()
        assert answer.status == 200, answer.read()


def of_bytes(size: int) -> tuple[bytes, dict[str, str]]:
    """Return a request with this many bytes, and its headers."""
    entry = {"name": "x", "datatype": "INT8", "shape": [size], "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [entry]}).encode()
    return head + b"\0" * size, {"Inference-Header-Content-Length": str(len(head))}


SIZE = 700_000  # bytes: two of them are more than MAX_OPEN
MAX_OPEN = 1 << 20


@pytest.fixture
def busy(start, gate):
    """A server with one open request, which ends when the gate opens."""
    held = gate("busy")
    server = start({"slow": {"backend": "TestGate", "gate": "busy"}, "any": "Identity"}, max_open=MAX_OPEN)
    statuses: list[int] = []
    body, headers = of_bytes(SIZE)
    caller = threading.Thread(target=lambda: statuses.append(server.post("/v2/models/slow/infer", body, headers)[0]))
    caller.start()
    assert held.begun.acquire(timeout=60)
    yield server, held
    held.opened.set()
    caller.join(60)
    assert statuses == [200]
    assert server.serving.budget.used == 0


@pytest.mark.parametrize("framing", [f"Content-Length: {SIZE}", "Transfer-Encoding: chunked", "Content-Encoding: gzip"])
def test_a_request_for_which_the_open_ones_leave_no_memory_is_answered_with_503(busy, framing):
    server, _ = busy
    body = b""  # with a Content-Length, the answer comes before the body
    if "chunked" in framing:
        body = b"%x\r\n%b" % (2 << 20, b"\0" * (2 << 20))
    elif "gzip" in framing:
        data = gzip.compress(of_bytes(SIZE)[0])
        framing, body = f"{framing}\r\nContent-Length: {len(data)}", data
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(f"POST /v2/models/any/infer HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n".encode() + body)
        answer = http.client.HTTPResponse(client)
        answer.begin()
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert json.loads(answer.read())["error"].startswith("the open requests of this server have 0 of 1 MiB")


def test_the_memory_of_a_request_that_has_ended_is_for_others(busy):
    server, held = busy
    body, headers = of_bytes(SIZE)
    assert server.post("/v2/models/any/infer", body, headers)[0] == 503
    assert server.post("/v2/models/any/infer", REQUEST)[0] == 200
    held.opened.set()
    while server.post("/v2/models/any/infer", body, headers)[0] != 200:
        pass


def test_a_thread_that_converts_while_a_lease_is_closed_leaves_nothing_charged():
    budget = Budget(1 << 20)
    lease = budget.lease()
    lease.add(100)

    class Lock:
        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            budget.lock = threading.Lock()
            lease.add(50)  # by another thread, which has waited for the lock

    budget.lock = Lock()
    lease.close()
    assert budget.used == budget.shared.value == 0


def test_a_request_that_is_alone_has_what_it_needs(start):
    server = start({"any": "Identity"}, max_open=1000)
    body, headers = of_bytes(SIZE)
    assert server.post("/v2/models/any/infer", body, headers)[0] == 200
    numbers = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [20_000], "data": [1.5] * 20_000}]}
    assert server.post("/v2/models/any/infer", numbers)[0] == 200
    assert server.serving.budget.used == 0


def test_an_answer_in_json_for_which_the_open_requests_leave_no_memory_is_one_with_503(busy):
    server, held = busy
    numbers = np.zeros(20_000, np.float32)  # 80 kB, and up to 500 kB in JSON
    entry = {"name": "x", "datatype": "FP32", "shape": [20_000], "parameters": {"binary_data_size": numbers.nbytes}}
    head = json.dumps({"inputs": [entry]}).encode()
    length = {"Inference-Header-Content-Length": str(len(head))}
    status, headers, content = server.call("POST", "/v2/models/any/infer", head + numbers.tobytes(), length)
    assert (status, headers["retry-after"]) == (503, "1")
    assert content["error"].startswith("the open requests of this server have 0 of 1 MiB")
    held.opened.set()
    while server.post("/v2/models/any/infer", head + numbers.tobytes(), length)[0] != 200:
        pass


def test_a_call_of_grpc_for_which_the_open_ones_leave_no_memory_is_rejected(gate, monkeypatch):
    grpc = pytest.importorskip("grpc")
    pytest.importorskip("grpc_health", reason="needs hami-serve[grpc]")
    from conftest import RunningGrpc

    from hami_serve.grpc_messages import message

    held = gate("call")
    server = RunningGrpc({"slow": {"backend": "TestGate", "gate": "call"}, "any": "Identity"}, max_open=12 * SIZE // 7)
    server.wait_for_memory(0.01, monkeypatch)
    shape = {"name": "x", "datatype": "INT8", "shape": [SIZE]}
    requests = [
        message("ModelInferRequest")(model_name=name, inputs=[shape], raw_input_contents=[b"\0" * SIZE])
        for name in ("slow", "any")
    ]
    try:
        with grpc.insecure_channel(server.url) as channel:
            infer = channel.unary_unary(
                "/inference.GRPCInferenceService/ModelInfer", lambda each: each.SerializeToString()
            )
            first = infer.future(requests[0], timeout=60)
            assert held.begun.acquire(timeout=60)
            assert infer.future(requests[1], timeout=60).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            server.wait_for_memory(60, monkeypatch)
            second = infer.future(requests[1], timeout=60)
            held.opened.set()
            assert (first.code(), second.code()) == (grpc.StatusCode.OK, grpc.StatusCode.OK)
    finally:
        held.opened.set()
        server.close()
    assert server.serving.budget.used == 0


def test_a_call_without_the_token_is_rejected_before_its_message_is_read(tmp_path):
    grpc = pytest.importorskip("grpc")
    pytest.importorskip("grpc_health", reason="needs hami-serve[grpc]")
    server = Server(tmp_path, "--grpc", "0")
    try:
        before = server.memory()
        with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
            infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            size = 60 << 20
            calls = [infer.future(b"\0" * size, timeout=60) for _ in range(4)]
            assert {call.code() for call in calls} == {grpc.StatusCode.UNAUTHENTICATED}
        assert server.memory() - before < size  # gRPC reads a part of each ahead, and no whole message
    finally:
        server.close()


def test_a_call_of_grpc_that_fails_leaves_no_memory_behind():
    """gRPC keeps the exception of an aborted call, with its frames, until the garbage collector runs."""
    grpc = pytest.importorskip("grpc")
    pytest.importorskip("grpc_health", reason="needs hami-serve[grpc]")
    from conftest import RunningGrpc

    from hami_serve.grpc_tensors import Received, Request

    server = RunningGrpc({"any": "Identity"})
    gc.collect()
    gc.disable()
    try:
        with grpc.insecure_channel(server.url) as channel:
            infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            for _ in range(3):
                call = infer.future(Request(model_name="any", id="i" * 1000).SerializeToString(), timeout=60)
                assert call.code() is grpc.StatusCode.INVALID_ARGUMENT
    finally:
        server.close()
        left = [each.size for each in gc.get_objects() if isinstance(each, Received)]
        gc.enable()
    assert left == []


def test_a_client_that_pings_during_a_long_request_is_answered(tmp_path):
    grpc = pytest.importorskip("grpc")
    pytest.importorskip("grpc_health", reason="needs hami-serve[grpc]")
    from conftest import GATES, Gate, RunningGrpc

    from hami_serve.grpc_messages import message

    gate = GATES["pings"] = Gate()
    server = RunningGrpc({"slow": {"backend": "TestGate", "gate": "pings"}})
    options = [("grpc.keepalive_time_ms", 200), ("grpc.http2.max_pings_without_data", 0)]
    given = {"name": "x", "datatype": "INT8", "shape": [1], "contents": {"int_contents": [1]}}
    request = message("ModelInferRequest")(model_name="slow", inputs=[given])
    try:
        with grpc.insecure_channel(server.url, options) as channel:
            infer = channel.unary_unary(
                "/inference.GRPCInferenceService/ModelInfer", lambda each: each.SerializeToString()
            )
            call = infer.future(request, timeout=60)
            with pytest.raises(grpc.FutureTimeoutError):
                call.result(3)  # more than ten pings
            gate.opened.set()
            assert call.code() is grpc.StatusCode.OK
    finally:
        gate.opened.set()
        server.close()


@pytest.mark.parametrize("datatype", ["FP32", "INT64", "BOOL"])
def test_one_long_text_among_numbers_costs_no_memory_for_each_of_them(start, datatype):
    """NumPy makes an array of texts of the longest length: 212 KB became 3.1 GiB."""
    server = start({"any": "Identity"})
    data = [True] * 1000 + ["a" * 100_000]
    tracemalloc.start()
    try:
        for path, given in (
            ("infer", {"inputs": [{"name": "x", "datatype": datatype, "shape": [1001], "data": data}]}),
            ("generate", {"x": data}),
        ):
            status, answer = server.post(f"/v2/models/any/{path}", given)
            assert (status, len(answer["error"]) < 500) == (400, True), answer
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()

"""The access log has the same lines from both doors, and writing them delays no request of the native door."""

from __future__ import annotations

import http.client
import json
import logging
import re
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from hami_serve import access_log, http_server, journal, native_door
from hami_serve.http_times import Times
from hami_serve.native_door import NativeDoor

STEPS = 400  # of a model whose request runs for 20 s, or until it is cancelled
CHAIN = ", ".join(f'n{each} = {{backend = "Sleep(50ms)", next = "n{each + 1}"}}' for each in range(STEPS))
MODELS = f"""
[any]
source = "Identity"

[wrong]
source = "Identity"
inputs = [{{name = "x", datatype = "INT8", shape = [-1]}}]
outputs = [{{name = "y", datatype = "FP32", shape = [-1]}}]

[slow]
source = "Sleep(50ms)"

[long]
source = {{{CHAIN}, n{STEPS} = {{backend = "Identity"}}}}
"""
TENSOR = {"name": "x", "datatype": "INT8", "shape": [1]}
NOTED = 1 << 12  # entries that wait, at most
INFER = "/v2/models/any/infer"


def body(id: str = "", **rest: object) -> bytes:
    return json.dumps({**({"id": id} if id else {}), "inputs": [{**TENSOR, "data": [1], **rest}]}).encode()


def lines_of(tmp_path, door: str, requests: Callable[[dict], None], *options: str) -> list[dict]:
    """Return what the access log says of requests to a server, without times, in the order of its lines' texts."""
    (tmp_path / "models.toml").write_text(MODELS)
    command = [sys.executable, "-m", "hami", "serve", "models.toml", "--http", "0", "--json", "--log", "json"]
    command += ["--access-log", "--door", door, *options]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            requests(json.loads(process.stdout.readline()))
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
        return sorted(map(without_times, map(json.loads, process.stderr)), key=json.dumps)


def without_times(line: dict) -> dict:
    assert line.get("total_ms", 0) >= line.get("queue_ms", 0) >= 0
    return {
        key: re.sub(r"_ms=[\d.]+", "_ms=", value) if key == "message" else value
        for key, value in line.items()
        if key not in ("time", "pid", "total_ms", "queue_ms", "compute_ms")
    }


def ask(found: dict, path: str, sent: bytes, **headers: str) -> int:
    with closing(http.client.HTTPConnection(found["http"].rpartition("/")[2], timeout=60)) as connection:
        connection.request("POST", path, sent, {key.replace("_", "-"): value for key, value in headers.items()})
        answer = connection.getresponse()
        answer.read()
        return answer.status


def ask_http(found: dict) -> None:
    raw = json.dumps({"id": "raw", "inputs": [{**TENSOR, "parameters": {"binary_data_size": 1}}]}).encode()
    statuses = [
        ask(found, INFER, body("json"), X_Request_Id="not this one"),
        ask(found, INFER, body(), X_Request_Id="nor this one"),
        ask(found, INFER, raw + b"\1", Inference_Header_Content_Length=str(len(raw))),
        ask(found, INFER, b"a picture", Content_Type="image/png", X_Request_Id="a header"),
        ask(found, INFER, b"a picture", Content_Type="image/png", X_Request_Id="caf\xe9"),
        ask(found, INFER, body('an "id" of é\u2028\n')),
        ask(found, INFER, body("x" * 2000)),
        ask(found, "/v2/models/any/versions/1/infer", body("versioned")),
        ask(found, "/v2/models/slow/infer", body("slow")),
        ask(found, INFER, body("a client's mistake", data=[1000])),
        ask(found, INFER, b"{", X_Request_Id="broken"),
        ask(found, "/v2/models/absent/infer", body("unknown")),
        ask(found, INFER, b"x" * (1 << 20) + body("too large")),
        ask(found, "/v2/models/wrong/infer", body("the model's failure")),
    ]
    assert statuses == [200] * 9 + [400, 400, 404, 413, 500]
    leave(found, "/v2/models/long/infer", body("left while it ran"), 0)
    leave(found, INFER, body(), 1, "X-Request-Id: left before its end")


def leave(found: dict, path: str, sent: bytes, missing: int, *headers: str) -> None:
    """Send a request, of whose body some bytes are missing, and leave when the server has it."""
    host, _, port = found["http"].rpartition("/")[2].partition(":")
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(sent)}", *headers, "", ""]
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall("\r\n".join(lines).encode() + sent[: len(sent) - missing])
        assert ask(found, "/v2/models/slow/infer", body("meanwhile")) == 200
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # an end that is a reset


def test_both_doors_have_the_same_lines_over_http(tmp_path):
    python, native = (lines_of(tmp_path, door, ask_http, "--max-request-mib", "1") for door in ("python", "native"))
    assert native == python
    lines = [each for each in native if each["logger"] == "hami.serve.access"]
    assert len(lines) == 18
    assert [each["request_id"] for each in lines if each["status"] == access_log.CLIENT_LEFT] == [
        "left before its end",
        "left while it ran",
    ]


def test_both_doors_have_the_same_lines_over_grpc(tmp_path):
    grpc = pytest.importorskip("grpc", reason="needs hami-serve[grpc]")
    from hami_serve.grpc_messages import SERVICE, message

    def asked(model: str, id: str, number: int = 1) -> bytes:
        contents = {"int_contents": [number]}
        return message("ModelInferRequest")(
            model_name=model, id=id, inputs=[{**TENSOR, "contents": contents}]
        ).SerializeToString()

    def ask_grpc(found: dict) -> None:
        with grpc.insecure_channel(found["grpc"].rpartition("/")[2]) as channel:
            infer = channel.unary_unary(f"/{SERVICE}/ModelInfer")
            infer(asked("any", "a"))
            infer(asked("any", ""))
            infer(asked("any", "x" * 2000))
            for model, id, number in (("any", "a mistake", 1000), ("absent", "unknown", 1), ("wrong", "a failure", 1)):
                with pytest.raises(grpc.RpcError):
                    infer(asked(model, id, number))
            left = infer.future(asked("long", "left"))
            infer(asked("slow", "meanwhile"))
            left.cancel()

    python, native = (lines_of(tmp_path, door, ask_grpc, "--grpc", "0") for door in ("python", "native"))
    assert native == python
    lines = [each for each in native if each["logger"] == "hami.serve.access"]
    statuses = sorted(each["status"] for each in lines)
    assert statuses[:3] == ["INTERNAL", "INVALID_ARGUMENT", "NOT_FOUND"]
    assert set(statuses[3:]) == {"OK"}


def test_a_line_of_text_has_the_model_the_status_and_the_times(tmp_path):
    (tmp_path / "models.toml").write_text(MODELS)
    command = [sys.executable, "-m", "hami", "serve", "models.toml", "--http", "0", "--json", "--access-log"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            ask(json.loads(process.stdout.readline()), INFER, body("a"))
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
        line = process.stderr.read()
    number = r"\d+\.\d+"
    said = f"hami serve: POST {INFER} over HTTP: 200 model=any version=1 request_id=a"
    assert re.fullmatch(rf"{said} total_ms={number} queue_ms={number} compute_ms={number}\n", line)


# ---- in this process, without the door in Python ----


class Kept(logging.Handler):
    """Keeps the lines of the access log, when it is let, and counts those that it misses."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.begun = threading.Event()
        self.fields: list[dict] = []
        self.missed = 0
        self.came = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        self.begun.set()
        self.may_go_on.wait(60)
        with self.came:
            if record.name == access_log.log.name:
                self.fields.append(record.fields)
            elif "were not recorded: their lines or spans are" in record.msg:
                self.missed += record.args[0]
            self.came.notify_all()

    def wait_for(self, count: int) -> list[dict]:
        with self.came:
            assert self.came.wait_for(lambda: len(self.fields) + self.missed >= count, timeout=60)
            return self.fields


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler = Kept()
    logger = logging.getLogger("hami.serve")
    logger.addHandler(handler)
    access_log.log.setLevel(logging.INFO)
    yield handler
    handler.may_go_on.set()
    access_log.log.setLevel(logging.NOTSET)
    logger.removeHandler(handler)


def ask_often(port: int, ids: list[str]) -> None:
    """Ask for each id over one connection, many at a time."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client, client.makefile("rb") as stream:
        for start in range(0, len(ids), 64):
            some = ids[start : start + 64]
            sent = map(body, some)
            client.sendall(
                b"".join(
                    f"POST {INFER} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(each)}\r\n\r\n".encode() + each
                    for each in sent
                )
            )
            for _ in some:
                head = b"".join(iter(stream.readline, b"\r\n"))
                assert head.startswith(b"HTTP/1.1 200")
                stream.read(int(re.search(rb"content-length: (\d+)", head)[1]))


def test_native_threads_note_a_request_without_python_on_its_way(start, monkeypatch, kept):
    server = start({"any": "Identity"}, door="native")
    left: list[object] = []
    monkeypatch.setattr(NativeDoor, "_start", lambda _, running: left.append(running))
    ask_often(server.port, ["a"])
    (line,) = kept.wait_for(1)
    assert not left
    assert (line["status"], line["model"], line["version"], line["request_id"]) == (200, "any", "1", "a")
    assert line["total_ms"] >= line["queue_ms"] + line["compute_ms"] > 0


@pytest.mark.parametrize("door", ["native", "python"])
def test_a_request_that_does_not_go_on_has_the_status_of_its_answer(start, kept, door):
    server = start({"any": "Identity"}, door=door, times=Times(body=0.01), logs=True)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client, client.makefile("rb") as stream:
        client.sendall(f"POST {INFER} HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n".encode())
        assert stream.readline().startswith(b"HTTP/1.1 408")
    assert [each["status"] for each in kept.wait_for(1)] == [408]


def test_clients_beside_each_other_have_one_line_for_each_request(start, kept):
    server = start({"any": "Identity"}, door="native")
    ids = [[f"{client}-{number}" for number in range(300)] for client in range(2)]
    threads = [threading.Thread(target=ask_often, args=(server.port, each)) for each in ids]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(each["request_id"] for each in kept.wait_for(600)) == sorted(ids[0] + ids[1])


def test_a_log_that_blocks_delays_no_request_and_what_it_misses_is_counted(start, kept):
    server = start({"any": "Identity"}, door="native")
    count = NOTED + 1000
    kept.may_go_on.clear()
    ask_often(server.port, ["first"])
    assert kept.begun.wait(60)
    ask_often(server.port, [str(number) for number in range(count)])
    kept.may_go_on.set()
    kept.wait_for(count + 1)
    assert len(kept.fields) + kept.missed == count + 1
    assert 0 < kept.missed <= 1000


def test_a_server_that_stops_writes_the_last_lines(start, kept):
    server = start({"any": "Identity"}, door="native")
    ask_often(server.port, [str(number) for number in range(200)])
    server.close()
    assert [each["request_id"] for each in kept.fields] == [str(number) for number in range(200)]


def test_a_request_that_a_server_which_stops_does_not_answer_was_not_left_by_its_client(start, kept, monkeypatch):
    monkeypatch.setattr(native_door, "MANY_CORES", 1 << 20)  # one thread reads what comes, in order
    monkeypatch.setattr(http_server, "LAST_ANSWERS_S", 0)
    server = start({"any": "Identity"}, door="native")
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(f"POST {INFER} HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n".encode())
        ask_often(server.port, ["a"])
        server.serving.drain(0)
        server.close()
    assert [each["status"] for each in kept.fields] == [200, 503]


def test_a_server_stops_while_its_log_blocks(start, kept, monkeypatch):
    monkeypatch.setattr(journal, "LAST_ENTRIES_S", 0.01)
    server = start({"any": "Identity"}, door="native")
    kept.may_go_on.clear()
    ask_often(server.port, ["a", "b"])
    assert kept.begun.wait(60)
    server.close()
    kept.may_go_on.set()
    assert {each["request_id"] for each in kept.wait_for(2)} == {"a", "b"}


def test_a_model_that_is_removed_before_its_line_is_written_is_still_known(start, kept):
    server = start({"any": "Identity", "other": "Identity"}, door="native")
    kept.may_go_on.clear()
    ask_often(server.port, ["a"])
    assert kept.begun.wait(60)
    ask_often(server.port, ["b"])
    server.serving.rounder.remove("any")
    for _ in range(3):
        server.get("/v2/models/stats")
    kept.may_go_on.set()
    assert [each["model"] for each in kept.wait_for(2)] == ["any", "any"]


def test_a_handler_that_raises_ends_no_later_line(start, kept, monkeypatch):
    server = start({"any": "Identity"}, door="native")
    written = access_log.Entry.write

    def fail_once(*given: object) -> None:
        monkeypatch.setattr(access_log.Entry, "write", written)
        kept.begun.set()
        raise RuntimeError("the handler of the program")

    monkeypatch.setattr(access_log.Entry, "write", fail_once)
    ask_often(server.port, ["a"])
    assert kept.begun.wait(60)
    ask_often(server.port, ["b"])
    assert kept.wait_for(1)[-1]["request_id"] == "b"

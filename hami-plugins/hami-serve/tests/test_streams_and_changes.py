"""Open streams while the server stops, and while their model is unloaded or loaded again: each has one end.

The server is a process, and the tests know only its addresses.
"""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

grpc = pytest.importorskip("grpc", reason="needs hami-serve[grpc]")
pytest.importorskip("hami_serve.grpc_messages", reason="needs hami-serve[grpc]", exc_type=ImportError)

from hami_serve.grpc_messages import message  # noqa: E402

BACKENDS = '''
import os
import threading
import hami

def wait_for(file):
    while not os.path.exists(file):
        threading.Event().wait(0.005)

@hami.register
class Held(hami.Backend):
    """Delivers a part, and two more when a file exists; the request says which."""

    def forward(self, batch):
        gate = batch[0]["data"]
        yield "1"
        wait_for(gate)
        yield "2"
        yield "3"

@hami.register
class Whole(hami.Backend):
    """Answers once, when a file exists."""

    def forward(self, batch):
        gate = os.fsdecode(batch[0]["data"])
        open(gate + ".begun", "w").close()
        wait_for(gate)
        for item in batch:
            item["result"] = "whole"

@hami.register
class Endless(hami.Backend):
    """Delivers parts of a size without end, and writes a file when it is closed."""

    def forward(self, batch):
        file, size = os.fsdecode(batch[0]["data"]).split(":")
        try:
            yield "1"
            while True:
                yield "x" * int(size)
        finally:
            open(file, "w").close()
'''
MODELS = """
held = {source = {backend = "Held", instance_num = 8}, decoupled = true}
in_turn = {source = {backend = "Held", instance_num = 8}}
whole = {source = {backend = "Whole", instance_num = 2}}
endless = {source = {backend = "Endless", instance_num = 2}}
"""
STOPPING = "the server is stopping"
CLOSED = "the pipe was closed"
Seen = tuple[str, str]  # "part", "error" or "end", and its text
WHOLE_STREAM = [("part", "2"), ("part", "3")]


class Server:
    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self.folder, self.process = folder, process
        said = json.loads(process.stdout.readline())
        self.port = int(said["http"].rpartition(":")[2])
        self.grpc = said["grpc"].removeprefix("grpc://")

    def post(self, path: str, body: object = None) -> tuple[int, bytes]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request("POST", path, json.dumps(body or {}))
            answer = connection.getresponse()
            return answer.status, answer.read()

    def open(self, gate: str) -> None:
        (self.folder / gate).touch()

    def wait_for(self, file: str) -> None:
        for _ in range(12_000):
            assert self.process.poll() is None
            if (self.folder / file).exists():
                return
            threading.Event().wait(0.005)
        raise TimeoutError(f"no backend has written {file}")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def ended(self) -> str:
        """Return what the server has logged; it has ended with status 0."""
        assert self.process.wait(60) == 0
        return self.process.stderr.read()


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Server]:
    (folder / "backends.py").write_text(BACKENDS)
    (folder / "models.toml").write_text(MODELS)
    command = [
        sys.executable,
        "-m",
        "hami",
        "serve",
        "models.toml",
        "--import",
        "backends.py",
        "--json",
        "--allow-control",
    ]
    command += ["--http", "0", "--grpc", "0", *options]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield Server(folder, process)
    finally:
        process.kill()
        process.communicate()


def over_http(server: Server, model: str, text: str) -> Iterator[Seen]:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        connection.request("POST", f"/v2/models/{model}/generate_stream", json.dumps({"text_input": text}))
        answer = connection.getresponse()
        for line in answer:  # raises IncompleteRead if the last chunk is missing
            if line.strip():
                event = json.loads(line.removeprefix(b"data: "))
                yield ("error", event["error"]) if "error" in event else ("part", event["result"])
        yield "end", str(answer.status)


def message_of(model: str, text: str) -> object:
    given = {"name": "x", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": [text.encode()]}}
    return message("ModelInferRequest")(model_name=model, inputs=[given])


def over_grpc(server: Server, model: str, text: str, *, left_open: bool = False) -> Iterator[Seen]:
    ended = threading.Event()

    def requests() -> Iterator[object]:
        yield message_of(model, text)
        if left_open:
            ended.wait(60)

    with grpc.insecure_channel(server.grpc) as channel:
        method = channel.stream_stream(
            "/inference.GRPCInferenceService/ModelStreamInfer",
            request_serializer=lambda each: each.SerializeToString(),
            response_deserializer=message("ModelStreamInferResponse").FromString,
        )
        answers = method(requests(), timeout=60)
        try:
            for answer in answers:
                if answer.error_message:
                    yield "error", answer.error_message
                else:
                    yield from (
                        ("part", out.contents.bytes_contents[0].decode()) for out in answer.infer_response.outputs
                    )
        except grpc.RpcError as error:
            yield "end", f"{error.code().name}: {error.details()}"
        else:
            yield "end", "OK"
        finally:
            ended.set()
            answers.cancel()


def over_open_grpc(server: Server, model: str, text: str) -> Iterator[Seen]:
    return over_grpc(server, model, text, left_open=True)


Kind = Callable[[Server, str, str], Iterator[Seen]]
ENDS: dict[Kind, str] = {over_http: "200", over_grpc: "OK", over_open_grpc: "UNAVAILABLE"}


class Streams:
    """Streams of all kinds and several models, of which the first part has come."""

    def __init__(self, server: Server, models: list[str], text: str, kinds: list[Kind]) -> None:
        self._streams = [(kind, kind(server, model, text)) for kind in kinds for model in models]
        assert [next(stream) for _, stream in self._streams] == [("part", "1")] * len(self._streams)

    def rest(self) -> list[tuple[Kind, list[Seen], str]]:
        """Return what comes after the first part of each, and its end."""
        with ThreadPoolExecutor(len(self._streams)) as pool:
            found = list(pool.map(lambda each: (each[0], list(each[1])), self._streams))
        assert {seen[-1][0] for _, seen in found} == {"end"}
        return [(kind, seen[:-1], seen[-1][1]) for kind, seen in found]


def test_streams_that_are_open_at_sigterm_end_with_all_their_parts(tmp_path):
    with serving(tmp_path, "--drain", "60") as server:
        streams = Streams(server, ["held", "in_turn"], "gate", list(ENDS))
        server.stop()
        server.open("gate")
        for kind, parts, end in streams.rest():
            assert parts == WHOLE_STREAM
            assert end.startswith(ENDS[kind]), end
        assert server.ended() == ""


def test_a_stream_that_is_idle_does_not_hold_a_server_that_stops(tmp_path):
    """It can be asked again until then: the client has left it open."""
    with serving(tmp_path, "--drain", "60") as server:
        server.open("gate")
        idle = over_open_grpc(server, "held", "gate")
        assert [next(idle) for _ in range(3)] == [("part", "1"), *WHOLE_STREAM]
        server.stop()
        assert list(idle) == [("end", "UNAVAILABLE: the server is stopping; open the stream again, at another server")]
        assert server.ended() == ""


def test_what_does_not_end_within_the_drain_time_ends_with_an_error_that_says_so(tmp_path):
    with serving(tmp_path, "--drain", "0.5") as server, ExitStack() as opened:
        streams = Streams(server, ["held", "in_turn"], "never", list(ENDS))
        pool = opened.enter_context(ThreadPoolExecutor(2))
        infer = {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "data": ["whole"]}]}
        whole = pool.submit(server.post, "/v2/models/whole/infer", infer)
        server.wait_for("whole.begun")
        channel = opened.enter_context(grpc.insecure_channel(server.grpc))
        method = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        unary = method.future(message_of("whole", "unary").SerializeToString(), timeout=60)
        server.wait_for("unary.begun")
        server.stop()
        for kind, ((what, text),), end in streams.rest():
            assert what == "error"
            assert text.startswith(STOPPING)
            assert end.startswith("200" if kind is over_http else "UNAVAILABLE: the server is stopping"), end
        assert whole.result()[0] == 503
        assert STOPPING in whole.result()[1].decode()
        assert unary.exception(60).code() is grpc.StatusCode.UNAVAILABLE
        assert unary.exception().details().startswith(STOPPING)
        log = server.ended()
        assert log.count("503 PipeClosed: the server is stopping") == 8
        assert "Traceback" not in log


def test_streams_that_nobody_reads_do_not_hold_a_server_that_stops(tmp_path):
    """Their models are closed too."""
    with serving(tmp_path, "--drain", "0.3") as server, ExitStack() as opened:
        body = b'{"text_input": "http.closed:65536"}'
        head = b"POST /v2/models/endless/generate_stream HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        client = opened.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
        client.sendall(head % len(body) + body)
        assert client.recv(1)
        unread = over_open_grpc(server, "endless", "grpc.closed:65536")
        assert next(unread) == ("part", "1")
        server.stop()
        log = server.ended()
        assert {each.name for each in tmp_path.glob("*.closed")} == {"http.closed", "grpc.closed"}
        assert "Traceback" not in log


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("server"), "--drain", "0.5") as running:
        yield running


@pytest.mark.parametrize("change", ["unload", "load"])
def test_streams_of_a_model_that_is_unloaded_or_loaded_again_end_with_all_their_parts(server, change):
    model = {"unload": "held", "load": "in_turn"}[change]
    assert server.post(f"/v2/repository/models/{model}/load") == (200, b"{}")
    streams = Streams(server, [model], change, [over_http, over_grpc])
    with ThreadPoolExecutor(1) as pool:
        changed = pool.submit(server.post, f"/v2/repository/models/{model}/{change}")
        server.open(change)
        found = streams.rest()
        assert [(parts, end) for _, parts, end in found] == [(WHOLE_STREAM, "200"), (WHOLE_STREAM, "OK")]
        assert changed.result() == (200, b"{}")
    assert (
        server.post(f"/v2/models/{model}/generate", {"text_input": change})[0] == {"unload": 503, "load": 200}[change]
    )


@pytest.mark.parametrize("change", ["unload", "load"])
def test_a_change_does_not_wait_longer_than_the_drain_time_for_streams(server, change):
    assert server.post("/v2/repository/models/endless/load") == (200, b"{}")
    streams = Streams(server, ["endless"], f"{change}.closed:1", [over_http, over_grpc])
    assert server.post(f"/v2/repository/models/endless/{change}") == (200, b"{}")
    for kind, parts, end in streams.rest():
        assert parts[-1] == ("error", CLOSED)
        assert set(parts[:-1]) <= {("part", "x")}
        assert end == ENDS[kind]
    server.wait_for(f"{change}.closed")

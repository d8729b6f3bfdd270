"""All that a model raises, at any place: one answer in bounded time, one line in the log, and a server that goes on."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from failing_backends import RAISED
from http2_frames import call, preface, reset

grpc = pytest.importorskip("grpc", reason="needs hami-serve[grpc]")
pytest.importorskip("grpc_health", reason="needs hami-serve[grpc]")
pytest.importorskip("grpc_reflection", reason="needs hami-serve[grpc]")

from hami_serve.grpc_messages import message  # noqa: E402

TIMEOUT = 10
SECRETS = {"FAIL_PASSWORD": "pass word/7", "FAIL_TOKEN": "t0ken'\"\n9"}
FORWARD = ("FailForward", "FailInline", "FailByItem", "FailFirstPart", "FailLaterPart", "FailEmitted")
LOADED = ("FailInit", "FailWarmup")
REJECTED = ("OwnRejection", "OwnTextForClients", "StrInterrupts", "TextsInterrupt")  # RequestErrors
MAX_TEXT = 4000
Answer = tuple[int, str]  # status of HTTP, text of the error


class Served:
    """`hami serve` in a process of its own, with its log and clients for both doors."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "models"
        self.folder.mkdir()
        for name in (*FORWARD, "FailResult", "FailConversion", "FailConversionOfPart", "FailSysExit"):
            self.write(name, f'[node]\nbackend = "{name}"\n')
        self.write(
            "Secret", '[node]\nbackend = "FailWithSecret"\nurl = "http://me:${env:FAIL_PASSWORD}@h/${env:FAIL_TOKEN}"\n'
        )
        backends = Path(__file__).with_name("failing_backends.py")
        options = ("--import", str(backends), "--http", "0", "--grpc", "0", "--allow-control", "--json")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hami", "serve", str(self.folder), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **SECRETS},
        )
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        found = json.loads(line)
        self.port = int(found["http"].rpartition(":")[2])
        self.grpc_port = int(found["grpc"].rpartition(":")[2])
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}")

    def write(self, name: str, text: str) -> None:
        (self.folder / f"{name}.toml").write_text(text, encoding="utf-8")

    def lines(self) -> list[str]:
        """Return the lines of the log since the last look: those before that of another request, which is made here."""
        assert self.post("/v2/look")[0] == 404
        found = []
        while "/v2/look over HTTP: 404" not in (line := self.process.stderr.readline()):
            assert line, "the server has ended"
            found.append(line.removesuffix("\n"))
        return found

    def close(self) -> None:
        self.channel.close()
        self.process.terminate()
        try:
            assert self.process.wait(TIMEOUT) == 0
        finally:
            self.process.kill()
            self.process.communicate()

    # ---- HTTP ----

    def post(self, path: str, body: object = None, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        try:
            connection.request("POST", path, None if body is None else json.dumps(body), headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def count(self, model: str) -> int:
        """Return how many requests a model has answered."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        with closing(connection):
            connection.request("GET", f"/v2/models/{model}/stats")
            (found,) = json.loads(connection.getresponse().read())["model_stats"]
        return found["inference_stats"]["success"]["count"]

    # ---- gRPC ----

    def method(self, name: str, answer: str, *, stream: bool = False) -> Callable[..., Any]:
        kind = self.channel.stream_stream if stream else self.channel.unary_unary
        return kind(
            f"/inference.GRPCInferenceService/{name}",
            request_serializer=lambda each: each.SerializeToString(),
            response_deserializer=message(answer).FromString,
        )


def http_infer(served: Served, model: str, data: str) -> Answer:
    tensor = {"name": "data", "datatype": "BYTES", "shape": [1], "data": [data]}
    status, body = served.post(f"/v2/models/{model}/infer", {"id": "r1", "inputs": [tensor]})
    return status, json.loads(body).get("error", "")


def http_generate(served: Served, model: str, data: str) -> Answer:
    status, body = served.post(f"/v2/models/{model}/generate", {"id": "r1", "data": data})
    return status, json.loads(body).get("error", "")


def http_stream(served: Served, model: str, data: str) -> Answer:
    """Return the status of the stream; 500 or 400 if it ends with an event with an error."""
    status, body = served.post(f"/v2/models/{model}/generate_stream", {"id": "r1", "data": data})
    if status != 200:
        return status, json.loads(body)["error"]
    events = [json.loads(each.removeprefix(b"data: ")) for each in body.split(b"\n\n")[:-1]]
    assert not any("error" in each for each in events[:-1])
    error = events[-1].get("error", "")
    return (0 if error else 200), error


TENSOR = {"name": "data", "datatype": "BYTES", "shape": [1], "data": [""]}
CODES = {"OK": 200, "INTERNAL": 500, "INVALID_ARGUMENT": 400, "UNAVAILABLE": 503, "NOT_FOUND": 404}


def http_plain(served: Served, model: str, data: str) -> Answer:
    status, body = served.post(f"/{model}", {"data": data})
    return status, "" if status == 200 else json.loads(body)["error"]


def grpc_request(model: str, data: str) -> Any:
    tensor = {"name": "data", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": [data.encode()]}}
    return message("ModelInferRequest")(model_name=model, id="r1", inputs=[tensor])


def grpc_call(call: Callable[[], Any]) -> Answer:
    try:
        call()
    except grpc.RpcError as error:
        return CODES[error.code().name], error.details()
    return 200, ""


def grpc_infer(served: Served, model: str, data: str) -> Answer:
    method = served.method("ModelInfer", "ModelInferResponse")
    return grpc_call(lambda: method(grpc_request(model, data), timeout=TIMEOUT))


def grpc_stream(served: Served, model: str, data: str) -> Answer:
    method = served.method("ModelStreamInfer", "ModelStreamInferResponse", stream=True)
    found = list(method(iter([grpc_request(model, data)]), timeout=TIMEOUT))
    assert not any(each.error_message for each in found[:-1])
    return (0 if found[-1].error_message else 200), found[-1].error_message


INFER = {each.__name__: each for each in (http_infer, http_generate, http_stream, grpc_infer, grpc_stream)}


def http_control(served: Served, action: str, model: str) -> Answer:
    status, body = served.post(f"/v2/repository/models/{model}/{action}")
    return status, json.loads(body).get("error", "")


def grpc_control(served: Served, action: str, model: str) -> Answer:
    name = f"RepositoryModel{action.capitalize()}"
    request = message(f"{name}Request")(model_name=model)
    return grpc_call(lambda: served.method(name, f"{name}Response")(request, timeout=TIMEOUT))


CONTROL = {each.__name__: each for each in (http_control, grpc_control)}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("served"))
    yield made
    made.close()


def expect_one_line(served: Served, model: str, id: str = "r1") -> str:
    lines = served.lines()
    assert len(lines) == 1, lines[:20]
    assert f'model "{model}"' in lines[0]
    assert not id or f'request "{id}"' in lines[0]
    assert lines[0].isprintable()
    assert len(lines[0]) < MAX_TEXT + 1000
    return lines[0]


def expect_tidy(text: str) -> None:
    assert text
    assert len(text) <= MAX_TEXT + 1
    assert all(each.isprintable() for each in text.split("\n"))


@pytest.mark.parametrize("door", INFER)
@pytest.mark.parametrize("raised", RAISED)
@pytest.mark.parametrize("model", FORWARD)
def test_what_a_model_raises_is_the_error_of_its_request(served: Served, model: str, raised: str, door: str) -> None:
    """With one answer and one line of log; the next request is answered."""
    status, text = INFER[door](served, model, raised)
    wanted = 400 if raised in REJECTED else 500
    assert status in ((0, wanted) if "stream" in door else (wanted,)), text
    expect_tidy(text)
    assert f": {wanted} " in expect_one_line(served, model)
    assert INFER[door](served, model, "good") == (200, "")
    assert served.lines() == []


@pytest.mark.parametrize("door", CONTROL)
@pytest.mark.parametrize("raised", RAISED)
@pytest.mark.parametrize("backend", LOADED)
def test_what_a_model_raises_while_it_loads_is_the_error_of_the_load(
    served: Served, backend: str, raised: str, door: str
) -> None:
    """The client gets the type of the exception, and the log its text. The others are served."""
    folder = served.folder / "loads"
    folder.mkdir()
    (folder / "model.toml").write_text('warmup = 1\ninputs = [{name = "data", datatype = "BYTES", shape = [1]}]\n')
    (folder / "1.toml").write_text(f'[node]\nbackend = "{backend}"\nraised = "{raised}"\n')
    try:
        status, text = CONTROL[door](served, "load", "loads")
        assert (status, "failed to load: " in text) == (500, True), text
        expect_tidy(text)
        assert ": 500 " in expect_one_line(served, "loads", "")
        assert http_infer(served, "loads", "good")[0] == 503
        assert "failed to load" in expect_one_line(served, "loads")
        (folder / "1.toml").write_text(f'[node]\nbackend = "{backend}"\nraised = ""\n')
        assert CONTROL[door](served, "load", "loads") == (200, "")
        assert http_infer(served, "loads", "good") == (200, "")
        assert CONTROL[door](served, "unload", "loads") == (200, "")
    finally:
        for each in folder.iterdir():
            each.unlink()
        folder.rmdir()
    assert served.lines() == []


@pytest.mark.parametrize("door", CONTROL)
@pytest.mark.parametrize("raised", RAISED)
def test_what_a_model_raises_while_it_closes_is_one_line_of_log(served: Served, raised: str, door: str) -> None:
    """The model is unloaded nevertheless."""
    served.write("closes", f'[node]\nbackend = "FailClose"\nraised = "{raised}"\n')
    try:
        assert CONTROL[door](served, "load", "closes") == (200, "")
        assert CONTROL[door](served, "unload", "closes") == (200, "")
    finally:
        (served.folder / "closes.toml").unlink()
    lines = served.lines()
    assert len(lines) == 1, lines
    assert http_infer(served, "closes", "good")[0] == 503
    expect_one_line(served, "closes")


@pytest.mark.parametrize("door", INFER)
@pytest.mark.parametrize("kind", ["object", "set", "lock", "complex", "masked", "masked integers", "name"])
def test_a_result_without_a_form_is_a_fault_of_the_model(served: Served, kind: str, door: str) -> None:
    status, text = INFER[door](served, "FailResult", kind)
    said = "the name of an output is Unicode text" if kind == "name" else "no form"
    assert (status, said in text) == (0 if door == "grpc_stream" else 500, True), text
    assert ": 500 " in expect_one_line(served, "FailResult")


@pytest.mark.parametrize("door", INFER)
def test_a_masked_array_without_masked_elements_is_a_tensor(served: Served, door: str) -> None:
    assert INFER[door](served, "FailResult", "nothing masked") == (200, "")


@pytest.mark.parametrize("door", [*INFER, "http_plain"])
@pytest.mark.parametrize(
    "raised", ["GeneratorExit", "asyncio.CancelledError", "KeyboardInterrupt", "OwnBase", "Frozen"]
)
@pytest.mark.parametrize(
    "place", ["cpu", "__dlpack__", "tolist", "__str__", "__str__ of many", "__iter__", "__getattr__"]
)
def test_what_a_result_raises_while_it_is_converted_is_the_error_of_its_request(
    served: Served, place: str, raised: str, door: str
) -> None:
    model = "FailConversionOfPart" if "stream" in door else "FailConversion"
    if door == "http_plain" and place == "__iter__":
        pytest.skip("an answer of plain JSON does not ask a dict for its iterator")
    infer, id = (http_plain, "") if door == "http_plain" else (INFER[door], "r1")
    status, text = infer(served, model, f"{place}: {raised}")
    assert status in ((0, 500) if "stream" in door else (500,)), text
    expect_tidy(text)
    assert ": 500 " in expect_one_line(served, model, id)
    assert infer(served, model, "good") == (200, "")
    assert served.lines() == []


@pytest.mark.parametrize("door", INFER)
def test_a_model_that_exits_does_not_end_the_server(served: Served, door: str) -> None:
    status, text = INFER[door](served, "FailSysExit", "exit")
    assert status in (0 if door == "grpc_stream" else 500,)
    assert text.startswith("the backend raised SystemExit(the model gives up)")
    expect_one_line(served, "FailSysExit")
    assert INFER[door](served, "FailSysExit", "good") == (200, "")


@pytest.mark.parametrize("door", INFER)
def test_secrets_of_the_configuration_reach_neither_clients_nor_the_log(served: Served, door: str) -> None:
    _, text = INFER[door](served, "Secret", "x")
    expect_tidy(text)
    assert text.splitlines()[0] == "ConnectionError: cannot reach 'http://***@h/***'"
    assert "'http://***@h/***'" in expect_one_line(served, "Secret")


@pytest.mark.parametrize("door", CONTROL)
def test_a_long_text_for_clients_is_cut(served: Served, door: str) -> None:
    """gRPC would drop trailers that are too large, and clients would try again."""
    name = "é%" * 5000
    served.write("far", f'[node]\nbackend = "Remote"\nurl = ["http://127.0.0.1:1"]\nmodel = "{name}"\n')
    try:
        status, text = CONTROL[door](served, "load", "far")
    finally:
        (served.folder / "far.toml").unlink()
    assert (status, text.startswith('no replica of the remote model "é%é%')) == (503, True), text
    expect_tidy(text)
    assert ": 503 RemoteUnavailable: no replica" in expect_one_line(served, "far", "")


@pytest.mark.parametrize("door", CONTROL)
def test_a_failed_load_tells_clients_its_kind_alone(served: Served, door: str) -> None:
    """At the load, in the index, in the readiness, and to later requests."""
    source = '[node]\nbackend = "FailWithSecret"\nurl = "in init of ${env:FAIL_PASSWORD}, file of the operator"\n'
    served.write("hidden", source)
    try:
        status, text = CONTROL[door](served, "load", "hidden")
    finally:
        (served.folder / "hidden.toml").unlink()
    reason = "failed to load: ConnectionError; the log of the server has the message"
    assert (status, text) == (500, f'"hidden" {reason}')
    assert "cannot reach in init of ***, file of the operator" in expect_one_line(served, "hidden", "")
    assert http_infer(served, "hidden", "x") == (503, f'"hidden" version "1" {reason}')
    assert "file of the operator" in expect_one_line(served, "hidden")
    index = json.loads(served.post("/v2/repository/index")[1])
    assert [each["reason"] for each in index if each["name"] == "hidden"] == [reason]


def test_a_mistake_of_a_client_is_one_line_of_log_without_a_traceback(served: Served) -> None:
    for path, body, status in (
        ("/v2/models/FailForward/infer", "no inputs", 400),
        ("/v2/models/FailForward/infer", {"inputs": []}, 400),
        ("/v2/models/absent\n/infer", {"inputs": [TENSOR]}, 404),
        ("/v2/nothing%0D%0Aforged", {}, 404),
    ):
        assert served.post(path.replace("\n", "%0A"), body)[0] == status
        (line,) = served.lines()
        assert (f"over HTTP: {status} " in line, line.isprintable()) == (True, True), line


@pytest.mark.parametrize("model", ["FailForward", "absent"])
@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_a_client_that_leaves_before_its_answer_is_sent_is_not_a_fault(served: Served, method: str, model: str) -> None:
    """It has no traceback in the log, neither of this server nor of gRPC."""
    request = grpc_request(model, "good").SerializeToString()
    calls, rounds, lines, before = 10, 10, [], 0 if model == "absent" else served.count(model)
    for begun in range(rounds):
        client = socket.create_connection(("127.0.0.1", served.grpc_port), timeout=TIMEOUT)
        client.sendall(preface(window=0) + b"".join(call(method, request, 1 + 2 * number) for number in range(calls)))
        if model == "absent":
            while len(lines) < calls * (begun + 1):
                lines += served.lines()
        else:
            while served.count(model) < before + calls * (begun + 1):
                pass
        reset(client)
    lines += served.lines()
    assert len(lines) == (calls * rounds if model == "absent" else 0), lines[:20]
    assert all(f'model "{model}", request "r1" over gRPC: 404 ' in line for line in lines), lines[:20]


def test_a_fault_of_the_server_itself_has_a_traceback(start, monkeypatch, caplog) -> None:
    def broken(**_: object) -> None:
        raise ZeroDivisionError("in the server")

    monkeypatch.setattr("hami_serve.describing.server_metadata", broken)
    server = start({})
    assert server.get("/v2") == (500, {"error": "ZeroDivisionError: in the server"})
    (record,) = (each for each in caplog.records if each.name == "hami.serve")
    head, _, trace = record.getMessage().partition("\n")
    assert head.startswith("GET /v2 over HTTP: 500 ZeroDivisionError: in the server (")
    assert "in broken\n" in trace

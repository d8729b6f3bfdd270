"""The command `hami serve`, in a process of its own."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

MODELS = '''
import threading
import hami

@hami.register
class Held(hami.Backend):
    """Ends when the file `open` exists."""

    def forward(self, batch):
        import pathlib
        print("begun", flush=True)
        while not pathlib.Path("open").exists():
            threading.Event().wait(0.01)
        for item in batch:
            item["result"] = "done"
'''


@contextmanager
def serving(folder: Path, *arguments: str):
    """Start `hami serve` in a folder; yield the process and its port."""
    command = [sys.executable, "-m", "hami", "serve", *arguments, "--http", "0"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert line.startswith("serving "), line + process.stderr.read()
        yield process, int(line.rpartition(":")[2])
    finally:
        process.kill()
        process.communicate()


def test_sigterm_answers_open_requests_and_ends_with_status_0(tmp_path):
    (tmp_path / "backends.py").write_text(MODELS)
    body = json.dumps({"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}]})
    with (
        serving(tmp_path, "Held", "--import", "backends.py") as (process, port),
        closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection,
    ):
        connection.request("POST", "/v2/models/Held/infer", body)
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        (tmp_path / "open").touch()
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["outputs"][0]["data"]) == (200, ["done"])
        assert process.wait(60) == 0
        assert process.stderr.read() == ""


def test_a_folder_is_served_on_loopback(tmp_path):
    (tmp_path / "echo.toml").write_text('[echo]\nbackend = "Identity"\n')
    with (
        serving(tmp_path, ".") as (process, port),
        closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection,
    ):
        connection.request("GET", "/v2/models/echo/ready")
        assert connection.getresponse().status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_grpc_is_served_beside_http(tmp_path):
    grpc = pytest.importorskip("grpc", reason="needs hami-serve[grpc]")
    health_pb2 = pytest.importorskip("grpc_health.v1.health_pb2")
    with (
        serving(tmp_path, "Identity", "--grpc", "0") as (process, port),
        grpc.insecure_channel(f"127.0.0.1:{port}") as to,
    ):
        check = to.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        assert check(health_pb2.HealthCheckRequest(), timeout=60).status == health_pb2.HealthCheckResponse.SERVING
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["absent.toml"], 1, 'cannot read "absent.toml": No such file'),
        (["S[Identity"], 1, '"[" is never closed'),
        (["Identity", "--import", "absent.py"], 1, 'cannot import "absent.py": no such file'),
        (["Identity", "--host", "203.0.113.1"], 1, "cannot listen on 203.0.113.1 port"),
        (["Identity", "--watch"], 1, "--watch needs a folder, got Identity"),
        (["Identity", "--http", "70000"], 2, "expected a port from 0 to 65535, got '70000'"),
        (["Identity", "--drain", "soon"], 2, "expected a time such as \"30s\", got 'soon'"),
    ],
)
def test_mistakes_end_the_command_with_a_sentence(tmp_path, arguments, status, message):
    command = [sys.executable, "-m", "hami", "serve", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, message in done.stderr, done.stdout) == (status, True, ""), done.stderr
    assert "Traceback" not in done.stderr

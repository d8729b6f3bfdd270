"""The command `hami serve`, in a process of its own."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from server_process import ask, free_port, running

MODELS = '''
import threading
import hami

@hami.register
class Held(hami.Backend):
    """Ends when the file `open` exists, or the request is cancelled."""

    def forward(self, batch):
        import pathlib
        print("begun", flush=True)
        while not pathlib.Path("open").exists() and not batch[0].cancelled:
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


@pytest.mark.parametrize("part", ["the request runs", "the body has not come"])
def test_a_request_that_is_open_when_the_drain_ends_is_answered_with_503(tmp_path, part):
    (tmp_path / "backends.py").write_text(MODELS)
    body = json.dumps({"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}]})
    with (
        serving(tmp_path, "Held", "--import", "backends.py", "--drain", "0.2s") as (process, port),
        closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection,
    ):
        if part == "the request runs":
            connection.request("POST", "/v2/models/Held/infer", body)
            assert process.stdout.readline() == "begun\n"
        else:
            connection.request("GET", "/v2/health/live")
            assert connection.getresponse().read()
            connection.putrequest("POST", "/v2/models/Held/infer")
            connection.putheader("Expect", "100-continue")
            connection.putheader("Content-Length", "999")
            connection.endheaders()
            assert connection.sock.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"  # the server waits for the body
        process.send_signal(signal.SIGTERM)
        answer = connection.getresponse()
        assert answer.status == 503
        assert "the server is stopping, and the request did not end in time" in json.loads(answer.read())["error"]
        assert process.wait(60) == 0


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


def test_with_json_the_first_line_has_the_models_and_the_address(tmp_path):
    command = [sys.executable, "-m", "hami", "serve", "Identity", "--http", "0", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            found = json.loads(process.stdout.readline())
        finally:
            process.kill()
    assert found["models"] == ["Identity"]
    assert found["http"].startswith("http://127.0.0.1:")
    assert "grpc" not in found


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


def test_a_token_is_needed_except_for_probes(tmp_path):
    (tmp_path / "token").write_text("s3cret\n")
    paths = [("/v2/health/ready", {}), ("/v2", {}), ("/v2", {"Authorization": "Bearer wrong"})]
    paths.append(("/v2", {"Authorization": "Bearer s3cret"}))
    found = []
    with serving(tmp_path, "Identity", "--token-file", "token") as (_, port):
        for path, headers in paths:
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
                connection.request("GET", path, headers=headers)
                answer = connection.getresponse()
                found.append((answer.status, "error" in json.loads(answer.read())))
    assert found == [(200, False), (401, True), (401, True), (200, False)]


def test_a_token_is_needed_over_grpc(tmp_path):
    grpc = pytest.importorskip("grpc", reason="needs hami-serve[grpc]")
    messages = pytest.importorskip("hami_serve.grpc_messages", exc_type=ImportError)
    (tmp_path / "token").write_text("s3cret\n")
    with (
        serving(tmp_path, "Identity", "--token-file", "token", "--grpc", "0") as (_, port),
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        method = channel.unary_unary(
            "/inference.GRPCInferenceService/ServerReady",
            response_deserializer=messages.message("ServerReadyResponse").FromString,
        )
        with pytest.raises(grpc.RpcError) as error:
            method(b"", timeout=60)
        assert error.value.code() == grpc.StatusCode.UNAUTHENTICATED
        assert method(b"", timeout=60, metadata=[("authorization", "Bearer s3cret")]).ready


def test_https_with_a_certificate(tmp_path, certificate):
    context = ssl.create_default_context(cafile=certificate[0])
    context.check_hostname = False
    with (
        serving(tmp_path, "Identity", "--tls-cert", "cert", "--tls-key", "key") as (_, port),
        closing(http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)) as connection,
    ):
        connection.request("GET", "/v2/health/live")
        assert connection.getresponse().status == 200


def test_an_encrypted_private_key_is_said_to_be_one(tmp_path, certificate):
    encrypt = ["openssl", "pkey", "-aes128", "-passout", "pass:secret", "-in", certificate[1], "-out", "encrypted"]
    subprocess.run(encrypt, cwd=tmp_path, check=True, capture_output=True)
    command = [sys.executable, "-m", "hami", "serve", "Identity", "--http", "0"]
    command += ["--tls-cert", "cert", "--tls-key", "encrypted"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, start_new_session=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: --tls-key encrypted is encrypted, and a server has no passphrase; write it")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["absent.toml"], 1, 'cannot read "absent.toml": No such file'),
        (["S[Identity"], 1, '"[" is never closed'),
        (["Identity", "--import", "absent.py"], 1, 'cannot import "absent.py": no such file'),
        (["Identity", "--host", "203.0.113.1"], 1, "cannot listen on 203.0.113.1 port"),
        (["Identity", "--tls-cert", "x"], 1, "--tls-cert and --tls-key belong together"),
        (
            ["Identity", "--tls-cert", __file__, "--tls-key", __file__],
            1,
            "are not a certificate in PEM and its private key",
        ),
        (["Identity", "--token-file", "x"], 1, '--token-file: cannot read "x": No such file'),
        (["Identity", "--watch"], 1, "--watch needs a folder, got Identity"),
        (["."], 1, '"." has no models: neither a file NAME.toml'),
        (["Identity", "--http", "70000"], 2, "expected a number from 0 to 65535, got '70000'"),
        (["Identity", "--drain", "soon"], 2, "expected a time such as \"30s\", got 'soon'"),
    ],
)
def test_mistakes_end_the_command_with_a_sentence(tmp_path, arguments, status, message):
    command = [sys.executable, "-m", "hami", "serve", "--http", "0", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, message in done.stderr, done.stdout) == (status, True, ""), done.stderr
    assert "Traceback" not in done.stderr


LOADS = '''
import pathlib
import threading
import hami

@hami.register
class Loads(hami.Backend):
    """Is loaded when the file `open` exists."""

    def init(self, options):
        while not pathlib.Path("open").exists():
            threading.Event().wait(0.01)
        if pathlib.Path("broken").exists():
            raise RuntimeError("the file of the model is damaged")

    def forward(self, batch):
        for item in batch:
            item["result"] = "done"
'''
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}]})


@contextmanager
def starting(folder: Path, *arguments: str):
    """Start `hami serve` with a model that loads; yield the process and its port, as soon as it answers."""
    (folder / "backends.py").write_text(LOADS)
    port = free_port()
    command = [sys.executable, "-m", "hami", "serve", "Loads", "--import", "backends.py", "--http", str(port)]
    with running([*command, *arguments], folder, port) as process:
        yield process, port


@pytest.mark.parametrize("workers", ["1", "2"])
def test_probes_are_answered_while_models_load_and_requests_wait(tmp_path, workers):
    with starting(tmp_path, "--workers", workers) as (process, port), ThreadPoolExecutor(1) as clients:
        while (found := ask(port, "/v2/health/ready"))[1]["loading"] == []:  # it has not begun
            assert found[0] == 503
        assert found == (503, {"ready": False, "loading": ["Loads"]})
        status, answer = ask(port, "/v2/models/Loads/ready")
        assert (status, answer["error"]) == (503, "the server is starting: Loads")
        waiting = clients.submit(ask, port, "/v2/models/Loads/infer", BODY)
        assert not waiting.done()
        (tmp_path / "open").touch()
        assert waiting.result(60)[1]["outputs"][0]["data"] == ["done"]
        assert process.stdout.readline().startswith("serving Loads ")
        assert ask(port, "/v2/health/ready") == (200, {"ready": True})
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_sigterm_does_not_wait_for_a_load_that_hangs(tmp_path, workers):
    with starting(tmp_path, "--workers", workers) as (process, _):
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""


def test_a_load_that_fails_after_sigterm_is_no_failure_of_the_server(tmp_path):
    with (
        starting(tmp_path) as (process, port),
        closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as client,
    ):
        client.request("POST", "/v2/models/Loads/infer", BODY)  # it waits for the model, and the server for it
        process.send_signal(signal.SIGTERM)
        with suppress(ConnectionError):
            while True:  # until the server listens no more
                socket.create_connection(("127.0.0.1", port), timeout=60).close()
        (tmp_path / "broken").touch()
        (tmp_path / "open").touch()
        assert client.getresponse().status == 503
        assert process.wait(60) == 0


def test_a_model_that_cannot_be_loaded_ends_the_server_with_its_error(tmp_path):
    (tmp_path / "broken").touch()
    with starting(tmp_path) as (process, _):
        (tmp_path / "open").touch()
        assert process.wait(60) == 1
        assert "RuntimeError: the file of the model is damaged" in process.stderr.read()


def test_models_that_cannot_be_loaded_fail_alone(tmp_path):
    (tmp_path / "backends.py").write_text(LOADS.replace('"broken"', 'f"broken {self.name}"') + "\n    name: str\n")
    (tmp_path / "open").touch()
    (tmp_path / "broken b").touch()
    models = tmp_path / "models"
    models.mkdir()
    for name in "abc":
        (models / f"{name}.toml").write_text(f'backend = "Loads"\nname = "{name}"\n')
    (models / "d.toml").write_text('backend = "Loads"\nname = "d"\nother = 1\n')
    with serving(tmp_path, "models", "--import", "backends.py") as (process, port):
        assert ask(port, "/v2/health/ready") == (200, {"ready": True})
        for name, status in (("a", 200), ("b", 503), ("c", 200), ("d", 503)):
            assert ask(port, f"/v2/models/{name}/ready")[0] == status
            assert ask(port, f"/v2/models/{name}/infer", BODY)[0] == status
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        logged = process.stderr.read()
        assert "b:1#2 is not loaded: RuntimeError: the file of the model is damaged" in logged
        assert "d:1#4 is not loaded: " in logged


def test_health_of_grpc_is_not_serving_while_models_load(tmp_path):
    grpc = pytest.importorskip("grpc", reason="needs hami-serve[grpc]")
    health_pb2 = pytest.importorskip("grpc_health.v1.health_pb2")
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with (
        starting(tmp_path, "--grpc", str(port)) as (process, _),
        grpc.insecure_channel(f"127.0.0.1:{port}") as to,
    ):
        check = to.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        found = health_pb2.HealthCheckResponse
        assert check(health_pb2.HealthCheckRequest(), timeout=60).status == found.NOT_SERVING
        (tmp_path / "open").touch()
        assert process.stdout.readline().startswith("serving Loads ")
        assert check(health_pb2.HealthCheckRequest(), timeout=60).status == found.SERVING


@pytest.mark.parametrize("options", [(), ("--door", "python", "--grpc", "0"), ("--workers", "2")])
def test_a_server_without_descriptors_says_so_in_one_line(tmp_path, options):
    limit = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (13, 13)); os.execv(sys.executable, "
    command = [sys.executable, "-c", f"{limit}sys.argv[1:])", sys.executable, "-m", "hami", "serve", "Identity"]
    done = subprocess.run([*command, "--http", "0", *options], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1, "")
    assert line.startswith("error: a server needs at least 64 open files, and the limit of this process is 13; ")

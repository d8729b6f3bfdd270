"""A server keeps running if its log has no reader."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import re
import subprocess
import sys
from contextlib import closing

import pytest

from hami_serve.log_lines import MAX_LINES, Lines

REQUEST = json.dumps({"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}]})
BACKEND = """
import hami
import logging

@hami.register
class Talks(hami.Backend):
    def forward(self, batch):
        logging.getLogger("talks").warning("y" * 1000)
        for item in batch:
            item["result"] = 1
"""


def test_a_log_without_a_reader_does_not_stop_the_server(tmp_path):
    (tmp_path / "backends.py").write_text(BACKEND)
    command = [sys.executable, "-m", "hami", "serve", "Talks", "--import", "backends.py", "--http", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            port = int(process.stdout.readline().rpartition(":")[2])
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
                for _ in range(300):  # more bytes than a pipe has
                    connection.request("POST", "/v2/models/Talks/infer", REQUEST)
                    answer = connection.getresponse()
                    assert (answer.status, bool(answer.read())) == (200, True)
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
        assert process.stderr.readline() == f"hami serve: {'y' * 1000}\n"


class Unprintable(Exception):
    def __str__(self):
        raise KeyboardInterrupt

    __repr__ = __bool__ = __str__


def test_a_message_that_cannot_be_formatted_is_a_line():
    reads, writes = os.pipe()
    handler = Lines(writes)
    error = Unprintable()
    handler.handle(logging.LogRecord("x", logging.ERROR, "", 0, "too %s", (error,), None))
    handler.handle(logging.LogRecord("x", logging.ERROR, "", 0, "traceback", (), (Unprintable, error, None)))
    handler.close()
    os.close(writes)
    with os.fdopen(reads) as stream:
        lines = ["a message of x cannot be formatted: KeyboardInterrupt", "'traceback' ()"]
        assert stream.read().splitlines() == [f"hami serve: {each}" for each in lines]


def test_messages_that_are_dropped_are_counted():
    reads, writes = os.pipe()
    count = MAX_LINES + 1000
    handler = Lines(writes)
    for number in range(count):
        handler.handle(logging.LogRecord("x", logging.WARNING, "", 0, "%d %s", (number, "y" * 1000), None))
    with os.fdopen(reads) as stream:
        found = []
        while "dropped" not in (line := stream.readline()):
            assert line.endswith(f" {'y' * 1000}\n")
            found.append(int(line.split()[2]))
        assert found == sorted(set(found))
        assert len(found) + int(re.search(r"\d+", line)[0]) == count
        handler.close()
        os.close(writes)
        assert stream.read() == ""


def test_the_messages_of_a_server_that_ends_are_written():
    reads, writes = os.pipe()
    handler = Lines(writes)
    handler.handle(logging.LogRecord("x", logging.WARNING, "", 0, "of %d", ("wrong",), None))
    handler.close()
    os.close(writes)
    with os.fdopen(reads) as stream:
        assert stream.read() == "hami serve: 'of %d' ('wrong',)\n"


def records_of(tmp_path, requests, *options: str) -> list[dict]:
    """Return the lines of the log of a server in JSON, after requests to it."""
    (tmp_path / "backends.py").write_text(BACKEND)
    command = [sys.executable, "-m", "hami", "serve", "Talks", "--import", "backends.py", "--json"]
    command += ["--http", "0", "--log", "json", *options]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            found = json.loads(process.stdout.readline())
            requests(found)
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
        return [json.loads(line) for line in process.stderr]


def post(found: dict, path: str, body: str, headers: dict[str, str] | None = None) -> None:
    with closing(http.client.HTTPConnection(found["http"].rpartition("/")[2], timeout=60)) as connection:
        connection.request("POST" if body else "GET", path, body or None, headers or {})
        connection.getresponse().read()


def test_each_request_has_a_line_in_json_with_its_model_its_status_and_its_times(tmp_path):
    def requests(found):
        post(found, "/v2/models/Talks/infer", REQUEST.replace("{", '{"id": "a", ', 1))
        post(found, "/Talks", "[1]", {"Content-Type": "application/json", "X-Request-Id": "b"})
        post(found, "/v2/models/absent/infer", REQUEST)
        post(found, "/v2/health/live", "")

    records = records_of(tmp_path, requests, "--access-log")
    lines = [each for each in records if each["logger"] == "hami.serve.access"]
    assert [(each["request"], each["status"], each["model"], each.get("request_id")) for each in lines] == [
        ("POST /v2/models/Talks/infer", 200, "Talks", "a"),
        ("POST /Talks", 200, "Talks", "b"),
        ("POST /v2/models/absent/infer", 404, "absent", None),
    ]
    for each in lines[:2]:
        assert each.keys() >= {"time", "level", "pid", "protocol", "version", "message"}
        assert each["total_ms"] >= each["queue_ms"] + each["compute_ms"] > 0
    (failed,) = [each for each in records if each["logger"] == "hami.serve" and each.get("status") == 404]
    assert failed.keys() >= {"error", "request_id"}
    assert (failed["level"], failed["error"], "traceback" in failed) == ("WARNING", "UnknownModel", False)
    assert {each["message"] for each in records if each["logger"] == "talks"} == {"y" * 1000}


def test_without_the_access_log_no_request_has_a_line(tmp_path):
    records = records_of(tmp_path, lambda found: post(found, "/Talks", "[1]", {"Content-Type": "application/json"}))
    assert {each["logger"] for each in records} == {"talks"}


def test_a_fault_of_the_server_has_its_traceback_in_one_line_of_json():
    reads, writes = os.pipe()
    handler = Lines(writes, as_json=True)
    logger = logging.getLogger("test-json-log")
    logger.propagate = False
    logger.addHandler(handler)
    try:
        raise ZeroDivisionError("a\nb")
    except ZeroDivisionError:
        logger.exception("failed\n")
    handler.handle(logging.LogRecord("x", logging.WARNING, "", 0, "of %d", ("wrong",), None))
    logger.removeHandler(handler)
    handler.close()
    os.close(writes)
    with os.fdopen(reads) as stream:
        first, second = map(json.loads, stream)
    assert (first["level"], first["message"]) == ("ERROR", "failed\n")
    assert first["traceback"].endswith("ZeroDivisionError: a\nb")
    assert second["message"] == "'of %d' ('wrong',)"


def test_calls_over_grpc_have_lines_too(tmp_path):
    grpc = pytest.importorskip("grpc", reason="needs the extra grpc")
    from hami_serve.grpc_messages import message

    def requests(found):
        with grpc.insecure_channel(found["grpc"].rpartition("/")[2]) as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            tensor = {"name": "x", "datatype": "INT8", "shape": [1], "contents": {"int_contents": [1]}}
            for model in ("Talks", "absent"):
                asked = message("ModelInferRequest")(model_name=model, id="c", inputs=[tensor])
                with contextlib.suppress(grpc.RpcError):
                    call(asked.SerializeToString())

    records = records_of(tmp_path, requests, "--access-log", "--grpc", "0")
    lines = [each for each in records if each["logger"] == "hami.serve.access"]
    assert [(each["request"], each["status"], each["model"], each["request_id"]) for each in lines] == [
        ("ModelInfer", "OK", "Talks", "c"),
        ("ModelInfer", "NOT_FOUND", "absent", "c"),
    ]
    assert lines[0]["compute_ms"] > 0

"""`hami serve-check`: it accepts our server, and notices servers that break the protocol."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.etree import ElementTree

import hami
import pytest

from hami_serve.conformance.context import CHECKS
from hami_serve.conformance.run import prepare, run_checks


def failures(results) -> dict[str, str]:
    return {result.claim: result.message for result in results if result.outcome == "failed"}


def test_our_server_passes_every_check(server):
    context, name = prepare(f"http://{server.url}", "simple", "any", "repeat_int32")
    results = run_checks(context)
    assert failures(results) == {}
    assert [result.claim for result in results if result.outcome == "skipped"] == []
    assert len(results) == len(CHECKS) >= 70
    assert name.startswith("hami-serve 2.0.0 at http://")


def test_a_model_with_text_passes_too(server):
    context, _ = prepare(server.url, "simple_string")
    assert failures(run_checks(context)) == {}


class Careless(BaseHTTPRequestHandler):
    """A server that answers everything with 200 and no outputs."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # one packet for each answer

    def answer(self) -> None:
        try:
            length = int(self.headers.get("Content-Length") or 0)
            self.rfile.read(length)
            inputs = [{"name": "x", "datatype": "FP32", "shape": [2]}]
            body = json.dumps({"name": "careless", "extensions": ["binary_tensor_data"], "inputs": inputs}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()
        except OSError:
            self.close_connection = True

    do_GET = do_POST = answer

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


class CarelessServer(ThreadingHTTPServer):
    request_queue_size = 256


def test_a_server_that_accepts_everything_fails_most_checks():
    server = CarelessServer(("127.0.0.1", 0), Careless)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        context, name = prepare(f"http://127.0.0.1:{server.server_port}", "m")
        results = run_checks(context)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert name.startswith("careless")
    found = failures(results)
    assert found["JSON tensors are answered with outputs whose elements fit their shapes"]
    assert "expected a status 4xx, got 200" in found["malformed JSON: a client error with a message"]
    assert "expected a status 4xx, got 200" in found["a truncated tail: a client error with a message"]
    passed = {result.claim for result in results if result.outcome == "passed"}
    assert "the server is live and ready" in passed


def test_the_command_writes_three_reports(server, tmp_path):
    command = [sys.executable, "-m", "hami", "serve-check", f"http://{server.url}", "--model", "simple"]
    done = subprocess.run(
        [*command, "--junit", "report.xml"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "passed   health      the server is live and ready\n" in done.stdout
    assert " passed, 0 failed, " in done.stdout.splitlines()[-1]
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == (str(len(CHECKS)), "0")
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=120)
    assert json.loads(done.stdout)["totals"]["passed"] > 40


def test_a_server_or_model_that_is_not_there_is_named(server):
    with pytest.raises(hami.ConfigError, match="no server answers at"):
        prepare("http://127.0.0.1:1", "m")
    with pytest.raises(hami.ConfigError, match='the server has no model "absent"'):
        prepare(server.url, "absent")
    with pytest.raises(hami.ConfigError, match="the URL of a server is such as"):
        prepare("ftp://x", "m")

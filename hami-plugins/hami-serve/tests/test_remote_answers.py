"""Answers of a remote server that the protocol does not have: errors of their requests alone, which name the output."""

from __future__ import annotations

import json
import re
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import hami
import numpy as np
import pytest

pytest.importorskip("aiohttp", reason="needs hami-serve[remote]")

from hami_serve import RemoteFailed

GOOD = {"name": "y", "datatype": "INT8", "shape": [1], "data": [7]}
METADATA = {"name": "m", "inputs": [{"name": "x", "datatype": "INT8", "shape": [1]}]}


class Replica:
    """Answers a request for 0 with a tensor, and any other with `answer`."""

    def __init__(self) -> None:
        self.metadata: object = METADATA
        self.answer: object = None
        self.sent: bytes | None = None  # instead of an answer
        self.requests = 0
        replica = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                self.send(replica.metadata)

            def do_POST(self) -> None:
                replica.requests += 1
                if replica.sent is not None:
                    self.wfile.write(replica.sent)
                    self.close_connection = True
                    return
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send({"outputs": [GOOD]} if body.endswith(b"\0") else replica.answer)

            def send(self, answer: object) -> None:
                data = json.dumps(answer).encode()
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(data), data))

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="module")
def replica():
    made = Replica()
    yield made
    made.close()


@pytest.fixture(scope="module")
def pipe(replica):
    options = {"max": 2, "min": 2, "batching_timeout": "60s"}
    with hami.pipe({"backend": "Remote", "url": [replica.url], "model": "m", **options}) as made:
        yield made


def malformed(message: str, *outputs: object, **changed: object):
    return pytest.param({"outputs": list(outputs) or [{**GOOD, **changed}]}, message, id=message)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        malformed("every output has a name, got 5", name=5),
        malformed("every output has a name, got None", name=None),
        malformed("the name of an output is not valid Unicode", name="\ud800"),
        malformed('two outputs have the name "y"', GOOD, GOOD),
        malformed("outputs is a list of objects", 1),
        malformed('the parameters of output "y" are an object', parameters=[1]),
        malformed('output "y" has the binary_data_size -1', data=[], parameters={"binary_data_size": -1}),
        malformed('output "y" has the datatype FOO', datatype="FOO"),
        malformed('output "y" has the size true in its shape', shape=[True]),
        malformed('output "y" has 1 elements; its shape', shape=[2]),
        malformed('the data of output "y" is not a regular list', data=[[1], [2, 3]]),
        malformed('output "y" has the element 1000; INT8 is -128 to 127', data=[1000]),
        pytest.param({"outputs": {}}, "outputs is a list of objects", id="no list"),
        pytest.param({}, "outputs is a list of objects", id="no outputs"),
    ],
)
def test_a_malformed_answer_fails_its_own_request_alone(replica, pipe, answer, message):
    """The request beside it in the batch is not sent a second time."""
    replica.answer, before = answer, replica.requests
    wrong, right = (pipe.submit({"data": np.int8([number])}, timeout=60) for number in (1, 0))
    assert right.result(60)["result"].tolist() == [7]
    with pytest.raises(RemoteFailed, match=f"the remote server sent a malformed answer: .*{message}"):
        wrong.result(60)
    assert replica.requests == before + 2


IS_NOT_HTTP = r"the answer is not HTTP/1\.1 \({}\); check that the url is that of the HTTP port of the server"


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"SSH-2.0-OpenSSH_9\r\n", IS_NOT_HTTP.format("Bad status line")),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", IS_NOT_HTTP.format("Invalid character in Content-Length")),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 10_000 + b"\r\n\r\n", IS_NOT_HTTP.format("Got more than 8190 bytes .*")),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
            "the connection ended in the middle of the answer; the log",
        ),
        (b"", "the connection ended without an answer; the log"),
        (
            b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n",
            "status 302 and without a text, expected 200; set the url",
        ),
        (
            b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n",
            "status 401 and without a text, expected 200; check the token",
        ),
    ],
    ids=["no HTTP", "bad length", "long head", "cut off", "nothing", "redirect", "no token"],
)
def test_an_answer_that_is_not_http_is_named_by_a_sentence_of_ours(sent, message):
    """aiohttp says "400", which the server has not sent."""
    replica = Replica()  # of which no request has failed
    replica.sent = sent
    try:
        with (
            hami.pipe({"backend": "Remote", "url": [replica.url], "model": "m"}) as pipe,
            pytest.raises(hami.Error, match=message) as raised,
        ):
            pipe({"data": np.int8([1])}, timeout=60)
    finally:
        replica.close()
    assert not re.search(r"\b400\b", str(raised.value))  # the port of a url may hold these digits


@pytest.mark.parametrize(
    ("spec", "message"),
    [({"datatype": "FOO"}, 'input "x" .* has the datatype FOO'), ({"shape": [float("inf")]}, "inputs of another form")],
)
def test_metadata_that_the_protocol_does_not_have_is_an_error_of_the_build(replica, monkeypatch, spec, message):
    monkeypatch.setattr(replica, "metadata", {"inputs": [{**METADATA["inputs"][0], **spec}]})
    with pytest.raises(RemoteFailed, match=message):
        hami.pipe({"backend": "Remote", "url": [replica.url], "model": "malformed"})


@pytest.mark.parametrize(
    ("outputs", "raw", "message"),
    [
        ([{"datatype": "INT8", "shape": [1]}], [b"1"], "every output has a name"),
        ([{"name": "y", "datatype": "INT8", "shape": [1]}] * 2, [b"1"] * 2, 'two outputs have the name "y"'),
        ([{"name": "y", "datatype": "INT8", "shape": [1]}], [b"1"] * 2, "raw_output_contents has 2 entries"),
        ([{"name": "y", "datatype": "FP16", "shape": [1]}], [], 'output "y" is FP16, which is sent as raw contents'),
    ],
)
def test_a_malformed_answer_over_grpc_names_the_output(outputs, raw, message):
    grpc = pytest.importorskip("grpc", reason="needs hami-serve[grpc]")
    from hami_serve.grpc_messages import SERVICE
    from hami_serve.grpc_messages import message as kind

    answers = {
        "ModelMetadata": kind("ModelMetadataResponse")(inputs=[{"name": "x", "datatype": "INT8", "shape": [1]}]),
        "ModelInfer": kind("ModelInferResponse")(outputs=outputs, raw_output_contents=raw),
    }
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(lambda *_, answer=answer: answer.SerializeToString())
        for name, answer in answers.items()
    }
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with (
            hami.pipe({"backend": "Remote", "url": [f"grpc://127.0.0.1:{port}"], "model": "m"}) as pipe,
            pytest.raises(RemoteFailed, match=message),
        ):
            pipe({"data": np.int8([1])}, timeout=60)
    finally:
        server.stop(None)

"""Spans of requests reach a receiver of OTLP, below the span of the client, over HTTP and gRPC."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import hami
import pytest

grpc = pytest.importorskip("grpc", reason="needs hami-serve[grpc]")
pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="needs hami-serve[otel]")
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc  # noqa: E402

from hami_serve import tracing  # noqa: E402
from hami_serve.grpc_messages import message  # noqa: E402

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
SERVER = 2  # the kind of a span
GRPC_INFER = "/inference.GRPCInferenceService/ModelInfer"
TENSOR = {"name": "x", "datatype": "INT8", "shape": [1]}


class Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps what it receives."""

    def __init__(self) -> None:
        self.received: list[object] = []

    def Export(self, request, context):
        self.received.append(request)
        return trace_service_pb2.ExportTraceServiceResponse()

    def spans(self) -> list[object]:
        return [
            span
            for each in self.received
            for of in each.resource_spans
            for scope in of.scope_spans
            for span in scope.spans
        ]


@pytest.fixture
def receiver():
    found = Receiver()
    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads)
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(found, server)
        found.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        yield found
        server.stop(None).wait()


def attributes(span) -> dict[str, object]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


def requests(found: dict) -> None:
    with closing(http.client.HTTPConnection(found["http"].rpartition("/")[2], timeout=60)) as connection:
        connection.request(
            "POST",
            "/v2/models/Identity/infer",
            json.dumps({"inputs": [{**TENSOR, "data": [1]}]}),
            {"traceparent": TRACEPARENT},
        )
        answer = connection.getresponse()
        assert (answer.status, bool(answer.read())) == (200, True)
    asked = message("ModelInferRequest")(model_name="Identity", inputs=[{**TENSOR, "contents": {"int_contents": [1]}}])
    with grpc.insecure_channel(found["grpc"].rpartition("/")[2]) as channel:
        channel.unary_unary(GRPC_INFER)(asked.SerializeToString(), metadata=[("traceparent", TRACEPARENT)])


@pytest.mark.parametrize("by", ["option", "environment"])
def test_spans_of_both_protocols_are_below_that_of_the_client(receiver, by):
    command = [sys.executable, "-m", "hami", "serve", "Identity", "--http", "0", "--grpc", "0", "--json"]
    command += ["--otlp", receiver.url] if by == "option" else []
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url} if by == "environment" else {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **variables}) as process:
        try:
            requests(json.loads(process.stdout.readline()))
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
    spans = receiver.spans()
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    doors = {span.name: span for span in spans if span.kind == SERVER}
    assert doors.keys() == {"POST /v2/models/{name}/infer", "inference.GRPCInferenceService/ModelInfer"}
    assert {span.parent_span_id.hex() for span in doors.values()} == {PARENT}
    assert attributes(doors["POST /v2/models/{name}/infer"])["http.response.status_code"] == 200
    for door in doors.values():
        (run,) = (span for span in spans if span.parent_span_id == door.span_id)
        assert (run.name, attributes(run)) == (
            "hami.request",
            {"hami.model.name": "Identity", "hami.model.version": "1"},
        )
        (node,) = (span for span in spans if span.parent_span_id == run.span_id)
        assert node.name == "hami.node"
    names = {
        each.key: each.value.string_value
        for of in receiver.received[0].resource_spans
        for each in of.resource.attributes
    }
    assert names["service.name"] == "hami-serve"


def test_without_the_packages_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    with pytest.raises(hami.PluginError, match=r'pip install "hami-serve\[otel\]"'), tracing.exporting("http://x"):
        pass


def test_without_an_endpoint_nothing_is_imported(monkeypatch):
    for variable in tracing.ENDPOINTS:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    with tracing.exporting(None):
        assert not tracing.is_on()

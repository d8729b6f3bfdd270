"""Spans of requests reach a receiver of OTLP, below the span of the client, over HTTP and gRPC."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import queue
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext, suppress

import hami
import pytest

grpc = pytest.importorskip("grpc", reason="needs hami-serve[grpc]")
pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="needs hami-serve[otel]")
from conftest import RunningGrpc  # noqa: E402
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc  # noqa: E402
from test_journal import MODELS as JOURNAL_MODELS  # noqa: E402
from test_journal import body, leave  # noqa: E402

from hami_serve import tracing  # noqa: E402
from hami_serve.grpc_messages import message  # noqa: E402

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
SERVER, FAILED = 2, 2  # the kind, and the status, of a span
SECOND = 1_000_000_000  # ns
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


MODELS = """
[any]
source = "S[Identity,Identity]"

[wrong]
source = "Identity"
inputs = [{name = "x", datatype = "INT8", shape = [-1]}]
outputs = [{name = "y", datatype = "FP32", shape = [-1]}]

[steps]
source = {a = {backend = "Identity", next = "b"}, b = {backend = "Identity"}}
"""


def tree(spans: list[object], parent: str) -> list[object]:
    """Return the spans below another one, without times and ids."""
    return sorted(
        [
            (
                *(span.name, span.kind, sorted(attributes(span).items()), span.status.code, span.status.message),
                *([event.name for event in span.events], tree(spans, span.span_id.hex())),
            )
            for span in spans
            if span.parent_span_id.hex() == parent
        ]
    )


def spans_of(receiver, tmp_path, door: str, requests, models: str = MODELS, protocol: str = "http") -> list[object]:
    """Return the spans of requests to an address of a server, which are in the time of this call."""
    receiver.received.clear()
    before = time.time_ns()
    (tmp_path / "models.toml").write_text(models)
    command = [sys.executable, "-m", "hami", "serve", "models.toml", "--http", "0", "--grpc", "0", "--json"]
    command += ["--otlp", receiver.url, "--door", door]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            requests(json.loads(process.stdout.readline())[protocol].rpartition("/")[2])
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
    spans = receiver.spans()
    for span in spans:  # the clocks of the two doors are not the same
        assert before - SECOND <= span.start_time_unix_nano <= span.end_time_unix_nano <= time.time_ns() + SECOND
    return spans


def ask(
    address: str, path: str, number: int = 1, method: str = "POST", parameters: object = None, **headers: str
) -> None:
    with closing(http.client.HTTPConnection(address, timeout=60)) as connection:
        given = {"inputs": [{**TENSOR, "data": [number]}], "parameters": parameters or {}}
        sent = json.dumps(given) if method == "POST" else None
        connection.request(method, path, sent, headers)
        connection.getresponse().read()


def ask_all(address: str) -> None:
    ask(address, "/v2/models/any/infer", traceparent=TRACEPARENT, tracestate="a=b", baggage="c=d")
    ask(address, "/v2/models/any/versions/1/infer", traceparent=TRACEPARENT)
    ask(address, "/v2/models/steps/infer", traceparent=TRACEPARENT)
    ask(address, "/v2/models/any/infer", traceparent="not one")
    ask(address, "/v2/models/any/infer", number=1000)
    ask(address, "/v2/models/any/infer", parameters={"priority": 2, "timeout": 60_000_000}, traceparent=TRACEPARENT)
    ask(address, "/v2/models/wrong/infer", traceparent=TRACEPARENT)
    ask(address, "/v2/models/absent/infer", traceparent=TRACEPARENT)
    ask(address, "/v2/health/live", method="GET")


def test_both_doors_record_the_same_spans(receiver, tmp_path):
    python, native = (spans_of(receiver, tmp_path, door, ask_all) for door in ("python", "native"))
    for parent in (PARENT, ""):
        assert tree(native, parent) == tree(python, parent) != []
    assert {span.trace_state for span in native} == {span.trace_state for span in python} == {"", "a=b"}


def test_a_request_whose_client_leaves_has_the_same_spans_from_both_doors(receiver, tmp_path):
    def requests(address: str) -> None:
        found = {"http": f"http://{address}"}
        leave(found, "/v2/models/long/infer", body("left"), 0, f"traceparent: {TRACEPARENT}")

    def without_nodes(spans: list[object]) -> list[object]:
        return tree([span for span in spans if span.name != "hami.node"], PARENT)

    python, native = (
        without_nodes(spans_of(receiver, tmp_path, door, requests, models=JOURNAL_MODELS))
        for door in ("python", "native")
    )
    assert native == python != []


def asked(model: str, number: int = 1, **rest: object) -> bytes:
    """Return a message of ModelInfer."""
    contents = {"int_contents": [number]}
    return message("ModelInferRequest")(
        model_name=model, inputs=[{**TENSOR, "contents": contents}], **rest
    ).SerializeToString()


def ask_all_over_grpc(address: str) -> None:
    parent = [("traceparent", TRACEPARENT), ("tracestate", "a=b"), ("baggage", "c=d")]
    urgent = {"priority": {"int64_param": 2}, "timeout": {"int64_param": 60_000_000}}
    with grpc.insecure_channel(address) as channel:
        infer = channel.unary_unary(GRPC_INFER)
        infer(asked("any"), metadata=parent)
        infer(asked("any"))
        infer(asked("steps"), metadata=parent[:1])
        infer(asked("any"), metadata=[("traceparent", "not one")])
        infer(asked("any"), metadata=[("traceparent", "x" * 2000)])
        infer(asked("any", parameters=urgent), metadata=parent)
        infer(asked("any"), metadata=parent, compression=grpc.Compression.Gzip)
        for model, number in (("any", 1000), ("absent", 1), ("wrong", 1)):
            with pytest.raises(grpc.RpcError):
                infer(asked(model, number), metadata=parent)


def test_both_doors_record_the_same_spans_over_grpc(receiver, tmp_path):
    python, native = (
        spans_of(receiver, tmp_path, door, ask_all_over_grpc, protocol="grpc") for door in ("python", "native")
    )
    for parent in (PARENT, ""):
        assert tree(native, parent) == tree(python, parent) != []
    statuses = {(attributes(span)["rpc.grpc.status_code"], span.status.code) for span in native if span.kind == SERVER}
    assert statuses == {(0, 0), (3, 0), (5, 0), (13, FAILED)}
    assert {span.trace_state for span in native} == {span.trace_state for span in python} == {"", "a=b"}


def test_a_call_whose_client_leaves_has_the_same_span_from_both_doors(receiver, tmp_path):
    def leave_over_grpc(address: str) -> None:
        with grpc.insecure_channel(address) as channel:
            infer = channel.unary_unary(GRPC_INFER)
            left = infer.future(asked("long"), metadata=[("traceparent", TRACEPARENT)])
            infer(asked("slow"))  # meanwhile
            left.cancel()
            infer(asked("slow"))

    def of_client(spans: list[object]) -> list[object]:
        return tree([span for span in spans if span.name != "hami.node"], PARENT)

    python, native = (
        of_client(spans_of(receiver, tmp_path, door, leave_over_grpc, JOURNAL_MODELS, "grpc"))
        for door in ("python", "native")
    )
    assert native == python != []


def test_native_threads_answer_calls_with_spans_without_python_on_their_way(monkeypatch):
    from hami_serve.native_grpc import NativeGrpc

    left: list[object] = []
    recorded: queue.Queue[tuple] = queue.Queue()
    monkeypatch.setattr(tracing, "is_on", lambda: True)
    monkeypatch.setattr(tracing, "record", lambda *given: recorded.put(given))
    monkeypatch.setattr(NativeGrpc, "_start", lambda *given: left.append(given))
    with closing(RunningGrpc({"any": "Identity"}, door="native")) as server:
        with grpc.insecure_channel(server.url) as channel:
            channel.unary_unary(GRPC_INFER)(asked("any"), metadata=[("traceparent", TRACEPARENT)])
        path, headers, status, *_ = recorded.get(timeout=60)
    assert (path, headers, status, left) == ("", [TRACEPARENT, "", ""], 0, [])


@pytest.mark.parametrize("fault", ["stopping", "leaving", "unreadable"])
def test_the_span_of_a_call_has_the_code_of_its_answer_or_none(monkeypatch, fault):
    from hami_serve import grpc_server
    from hami_serve.grpc_stopping import LastCalls

    last, codes, aborted = LastCalls(), [], []
    last.over = fault == "stopping"

    class Context:
        def invocation_metadata(self):
            return ()

        async def abort(self, code, text):
            aborted.append(code.value[0])

    async def method(request, context):
        if fault == "unreadable":
            return {"no_such_field": 1}
        raise asyncio.CancelledError

    monkeypatch.setattr(tracing, "is_on", lambda: True)
    monkeypatch.setattr(tracing, "server_span", lambda *given, **keys: nullcontext())
    monkeypatch.setattr(tracing, "describe_call", lambda span, code: codes.append(code))
    monkeypatch.setattr(grpc_server, "_readable", lambda request: request)
    call = grpc_server.unary("ModelInfer", method, message("ModelInferResponse"), last)
    with suppress(asyncio.CancelledError):  # of a client that leaves
        asyncio.run(call(message("ModelInferRequest")(), Context()))
    expected = {"stopping": [grpc.StatusCode.UNAVAILABLE], "leaving": [], "unreadable": [grpc.StatusCode.INTERNAL]}
    assert codes == aborted == [code.value[0] for code in expected[fault]]


def test_requests_that_are_not_sampled_have_no_spans_from_both_doors(receiver, tmp_path):
    def requests(address: str) -> None:
        ask(address, "/v2/models/any/infer", traceparent=f"{TRACEPARENT[:-1]}0")

    for door in ("python", "native"):
        assert spans_of(receiver, tmp_path, door, requests) == []


def test_with_another_propagator_the_door_in_python_finds_the_parent(monkeypatch):
    from opentelemetry import propagate

    class Own:
        fields = frozenset({"x-own-trace"})

    assert tracing.is_native()
    monkeypatch.setattr(propagate, "get_global_textmap", Own)
    assert not tracing.is_native()


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

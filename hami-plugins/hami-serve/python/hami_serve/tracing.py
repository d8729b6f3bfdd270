"""Spans of OpenTelemetry: that of a request at the door, below the span of its client, and those of the pipe."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import hami

if TYPE_CHECKING:
    from opentelemetry import trace

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")  # variables that turn spans on
NAME = "hami-serve"
HEADERS = ("traceparent", "tracestate", "baggage")  # those that the native door passes on, in its order
FAULTS = {2, 4, 12, 13, 14, 15}  # codes of gRPC that are faults of the server: UNKNOWN, DEADLINE_EXCEEDED, …
Scope = MutableMapping[str, Any]


def is_wanted(endpoint: str | None) -> bool:
    """Return whether the option or the environment asks for spans."""
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return not disabled and bool(endpoint or any(os.environ.get(each) for each in ENDPOINTS))


@contextmanager
def exporting(endpoint: str | None) -> Iterator[None]:
    """Send the spans of this process to an OTLP receiver (gRPC) inside the block, if that is wanted.

    Args:
        endpoint: Its URL, such as http://127.0.0.1:4317; None for that of the environment.

    Raises:
        PluginError: The packages of OpenTelemetry are not installed.
    """
    if not is_wanted(endpoint):
        yield
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise hami.PluginError(
            f"spans need packages that are not installed: {error}", 'install them: pip install "hami-serve[otel]"'
        ) from error
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": NAME}
    provider = TracerProvider(resource=Resource.create(named))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        provider.shutdown()  # sends the last spans


def is_on() -> bool:
    """Return whether this program has set a provider of OpenTelemetry."""
    api = sys.modules.get("opentelemetry.trace")  # which nothing here imports
    return api is not None and not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider)


def is_native() -> bool:
    """Return whether the parent of a span is in `HEADERS`."""
    from opentelemetry import propagate

    return propagate.get_global_textmap().fields <= {*HEADERS}


def traced(pipe: hami.Pipe, component: str, version: str) -> hami.Pipe:
    """Return the pipe of a model in a form whose requests have spans, if there is a provider."""
    if not is_on():
        return pipe
    attributes = {"hami.model.name": component, "hami.model.version": version}
    return hami.observe.opentelemetry(pipe, attributes=attributes)


@contextmanager
def server_span(
    name: str, headers: Mapping[str, str], attributes: Mapping[str, str], *, records_faults: bool = True
) -> Iterator[trace.Span]:
    """Start a span for a request to the server, the parent of spans inside the block. Tracing is on.

    Args:
        name: Its name.
        headers: With `traceparent` and `tracestate` of the client (W3C Trace Context), if it has them.
        attributes: By the semantic conventions of OpenTelemetry.
        records_faults: An exception that leaves the block is recorded in the span.
    """
    from opentelemetry import trace
    from opentelemetry.propagate import extract

    with trace.get_tracer(NAME).start_as_current_span(
        name,
        extract(headers),
        trace.SpanKind.SERVER,
        attributes=attributes,
        record_exception=records_faults,
        set_status_on_exception=records_faults,
    ) as span:
        yield span


def attributes_of_call(service: str, name: str) -> dict[str, str]:
    """Return the attributes of a call of gRPC."""
    return {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}


def describe_call(span: trace.Span, code: int) -> None:
    """Set the status of a call of gRPC, which has been answered."""
    span.set_attribute("rpc.grpc.status_code", code)
    if code in FAULTS:
        _fail(span)


def _fail(span: trace.Span) -> None:
    from opentelemetry.trace import StatusCode

    span.set_status(StatusCode.ERROR)


@dataclass(frozen=True)
class Run:
    """A request of a model that the native door has made. The moments are of time.monotonic_ns."""

    pipe: hami.Pipe
    keys: dict[str, Any]  # of the request, among them its visits
    error: BaseException | None
    began: int
    ended: int


def record(
    path: str, trace_headers: Sequence[str], status: int | None, began: int, ended: int, run: Run | None
) -> None:
    """Record the spans of an inference request that the native door has answered.

    Args:
        path: That of the request; "" over gRPC.
        trace_headers: The values of `HEADERS`, "" for those that the request does not have.
        status: That of the answer, over gRPC its code; None if the client of gRPC has left.
        began: When it began, of time.monotonic_ns.
        ended: When it had its answer.
        run: How the model ran; None if it did not.
    """
    from opentelemetry import trace
    from opentelemetry.propagate import extract

    offset = time.time_ns() - time.monotonic_ns()
    parent = extract({name: value for name, value in zip(HEADERS, trace_headers, strict=True) if value})
    name, attributes = "POST", {"http.request.method": "POST", "url.path": path}
    if not path:
        from hami_serve.grpc_messages import SERVICE

        name, attributes = f"{SERVICE}/ModelInfer", attributes_of_call(SERVICE, "ModelInfer")
    span = trace.get_tracer(NAME).start_span(
        name, parent, trace.SpanKind.SERVER, attributes=attributes, start_time=began + offset
    )
    if path and status is not None:
        parts = path.split("/")  # /v2/models/NAME/infer or /v2/models/NAME/versions/VERSION/infer
        parameters = {"name": parts[3]} if len(parts) == 5 else {"name": parts[3], "version": parts[5]}
        _describe(span, {"method": "POST", "path": path, "path_params": parameters}, status)
    elif status is not None:
        describe_call(span, status)
    record_run: Any = getattr(run.pipe, "record", None) if run is not None else None
    if run is not None and record_run is not None:  # it was built with a provider
        with trace.use_span(span):
            record_run(run.keys, run.error, run.began + offset, run.ended + offset)
    span.end(ended + offset)


class Tracing:
    """An ASGI application that records a span for each request of another one."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not is_on():
            await self._app(scope, receive, send)
            return
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        attributes = {"http.request.method": scope["method"], "url.path": scope["path"]}
        with server_span(scope["method"], headers, attributes) as span:

            async def noted(message: Mapping[str, Any]) -> None:
                if message["type"] == "http.response.start":
                    _describe(span, scope, message["status"])
                await send(message)

            await self._app(scope, receive, noted)


def _describe(span: trace.Span, scope: Scope, status: int) -> None:
    span.set_attribute("http.response.status_code", status)
    parameters = scope.get("path_params", {})
    if "name" not in parameters:
        return
    route = "/".join(_placeholder(part, parameters) for part in scope["path"].split("/"))
    span.set_attribute("http.route", route)
    span.update_name(f"{scope['method']} {route}")
    if status >= 500:
        _fail(span)


def _placeholder(part: str, parameters: Mapping[str, str]) -> str:
    return next((f"{{{key}}}" for key, value in parameters.items() if value == part), part)

"""Spans of OpenTelemetry for the requests of a pipe."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

from hami import _core
from hami._errors import BatchError, ConfigError, name_of, text_of
from hami._runtime.pipe import Pipe

try:
    from opentelemetry import context, trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    raise ConfigError("opentelemetry() needs OpenTelemetry: pip install opentelemetry-api") from None

_KEYS = ("traceparent", "tracestate")  # of W3C Trace Context
_PROPAGATOR = TraceContextTextMapPropagator()
_VISITS = "hami.visits"  # the key under which the core takes what records the nodes of a request


def opentelemetry(
    pipe: Pipe, tracer_provider: trace.TracerProvider | None = None, attributes: Mapping[str, str] | None = None
) -> Pipe:
    """Return the same running pipe in a form that records a span of OpenTelemetry for each request.

    >>> with hami.pipe("Identity") as pipe:
    ...     traced = hami.observe.opentelemetry(pipe)
    ...     traced({"data": 1})["result"]
    1

    The span `hami.request` lasts from the call until the outcome, and records the exception of a request that failed.
    Its parent is the span that the key `traceparent` of the request names (W3C Trace Context; `tracestate` too), else
    the current span of the caller. It has a child for each node that the request visited, `hami.node`, from its arrival
    in the queue of the node until it left, with the event `batch started`. Requests that are made through `pipe` itself
    have no spans.

    Args:
        pipe: A running pipe. Closing it or the returned one closes both.
        tracer_provider: Makes the spans; by default the global one of OpenTelemetry.
        attributes: Of the span of each request, such as the name of a model.

    Raises:
        ConfigError: opentelemetry-api is not installed.
    """
    tracer = trace.get_tracer("hami", tracer_provider=tracer_provider)
    traced = object.__new__(_TracedPipe)
    vars(traced).update(vars(pipe))
    traced._tracer = tracer
    traced._attributes = dict(attributes or {})
    return traced


class _RequestSpan:
    """The span of one request, and those of the nodes that it visits."""

    def __init__(self, pipe: _TracedPipe, request: Any, priority: int | None, began: int | None = None) -> None:
        parent = context.get_current()
        keys = request if isinstance(request, Mapping) else {}
        carrier = {key: keys[key] for key in _KEYS if isinstance(keys.get(key), str)}
        if "traceparent" in carrier:
            parent = _PROPAGATOR.extract(carrier, parent)  # keeps the parent if the key is not valid
        chosen = keys.get("priority", priority)
        found: dict[str, str | int] = {**pipe._attributes}
        if isinstance(chosen, int):
            found["hami.priority"] = chosen
        self._tracer = pipe._tracer
        self._span = self._tracer.start_span("hami.request", parent, attributes=found, start_time=began)
        self._request: dict[str, Any] = {}
        if isinstance(request, dict) and self._span.is_recording():
            self._request = request
            self._visits = request.setdefault(_VISITS, _core.record_visits())  # another may record them already

    def end(self, error: BaseException | None, ended: int | None = None) -> None:
        """End the spans; `error` is that of the request."""
        if self._request.pop(_VISITS, None) is not None:
            self._add_nodes()
        if error is not None:
            with suppress(Exception):  # the traceback asks the exception, whose class may raise
                self._span.record_exception(error, timestamp=ended)
            self._span.set_status(trace.StatusCode.ERROR, f"{name_of(error)}: {text_of(error) or ''}")
        self._span.end(ended)

    def _add_nodes(self) -> None:
        offset = time.time_ns() - time.monotonic_ns()
        parent = trace.set_span_in_context(self._span)
        for node, arrived, started, ended, failed in _core.visits_in(self._visits):
            span = self._tracer.start_span(
                "hami.node", parent, attributes={"hami.node": node}, start_time=arrived + offset
            )
            if started is not None:
                span.add_event("batch started", timestamp=started + offset)
            if failed or ended is None:
                span.set_status(trace.StatusCode.ERROR)
            span.end(None if ended is None else ended + offset)


class _TracedPipe(Pipe):
    _tracer: trace.Tracer
    _attributes: Mapping[str, str]

    def _start_span(self, request: Any, priority: int | None) -> _RequestSpan:
        return _RequestSpan(self, request, priority)

    def record(self, request: dict[str, Any], error: BaseException | None, began: int, ended: int) -> None:
        """Record the spans of a request that native code has made. The moments are of `time.time_ns()`."""
        _RequestSpan(self, request, None, began).end(error, ended)

    def __call__(self, requests: Any, timeout: float | None = None, *, priority: int | None = None) -> Any:
        all_requests = requests if isinstance(requests, list) else [requests]
        spans = [self._start_span(request, priority) for request in all_requests]
        return _ending(spans, lambda: super(_TracedPipe, self).__call__(requests, timeout, priority=priority))

    def submit(self, request: Any, timeout: float | None = None, *, priority: int | None = None) -> Future[Any]:
        span = self._start_span(request, priority)
        try:
            future: Future[Any] = super().submit(request, timeout, priority=priority)
        except BaseException as error:
            span.end(error)
            raise
        future.add_done_callback(lambda done: span.end(_error_of(done)))
        return future

    async def acall(self, request: Any, timeout: float | None = None, *, priority: int | None = None) -> Any:
        with _ended(self._start_span(request, priority)):
            return await super().acall(request, timeout, priority=priority)

    def stream(
        self, request: dict[str, Any], timeout: float | None = None, *, priority: int | None = None, buffer: int = 16
    ) -> Iterator[Any]:
        parts = super().stream(request, timeout, priority=priority, buffer=buffer)

        def traced() -> Iterator[Any]:
            with _ended(self._start_span(request, priority)):
                yield from parts

        return traced()

    def astream(
        self, request: dict[str, Any], timeout: float | None = None, *, priority: int | None = None, buffer: int = 16
    ) -> AsyncGenerator[Any, None]:
        parts = super().astream(request, timeout, priority=priority, buffer=buffer)

        async def traced() -> AsyncGenerator[Any, None]:
            with _ended(self._start_span(request, priority)):
                try:
                    async for part in parts:
                        yield part
                except GeneratorExit:
                    await parts.aclose()
                    raise

        return traced()


@contextmanager
def _ended(span: _RequestSpan) -> Iterator[None]:
    """End the span of a request with its outcome."""
    try:
        yield
    except GeneratorExit:  # the caller has left the loop
        span.end(None)
        raise
    except BaseException as error:
        span.end(error)
        raise
    span.end(None)


def _ending(spans: list[_RequestSpan], run: Any) -> Any:
    """Call a function, and end the span of each request with its outcome."""
    try:
        result = run()
    except BaseException as error:
        of_request = dict(error.errors) if isinstance(error, BatchError) and len(spans) > 1 else {}
        for index, span in enumerate(spans):
            span.end(of_request.get(index) if of_request else error)
        raise
    for span in spans:
        span.end(None)
    return result


def _error_of(future: Future[Any]) -> BaseException | None:
    from concurrent.futures import CancelledError

    return CancelledError("the request was cancelled") if future.cancelled() else future.exception()

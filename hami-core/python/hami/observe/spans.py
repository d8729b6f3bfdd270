"""Spans of OpenTelemetry for the requests of a pipe."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

from hami._errors import BatchError, ConfigError
from hami._runtime.pipe import Pipe

try:
    from opentelemetry import context, trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    raise ConfigError("opentelemetry() needs OpenTelemetry: pip install opentelemetry-api") from None

_KEYS = ("traceparent", "tracestate")  # of W3C Trace Context
_PROPAGATOR = TraceContextTextMapPropagator()


def opentelemetry(pipe: Pipe, tracer_provider: trace.TracerProvider | None = None) -> Pipe:
    """Return the same running pipe in a form that records a span of OpenTelemetry for each request.

    >>> with hami.pipe("Identity") as pipe:
    ...     traced = hami.observe.opentelemetry(pipe)
    ...     traced({"data": 1})["result"]
    1

    The span `hami.request` lasts from the call until the outcome, and records the exception of a request that failed.
    Its parent is the span that the key `traceparent` of the request names (W3C Trace Context; `tracestate` too), else
    the current span of the caller. Requests that are made through `pipe` itself have no spans.

    Args:
        pipe: A running pipe. Closing it or the returned one closes both.
        tracer_provider: Makes the spans; by default the global one of OpenTelemetry.

    Raises:
        ConfigError: opentelemetry-api is not installed.
    """
    tracer = trace.get_tracer("hami", tracer_provider=tracer_provider)
    traced = object.__new__(_TracedPipe)
    traced._core = pipe._core
    traced._tracer = tracer
    return traced


class _TracedPipe(Pipe):
    _tracer: trace.Tracer

    def _start_span(self, request: Any, priority: int | None) -> trace.Span:
        parent = context.get_current()
        keys = request if isinstance(request, Mapping) else {}
        carrier = {key: keys[key] for key in _KEYS if isinstance(keys.get(key), str)}
        if "traceparent" in carrier:
            parent = _PROPAGATOR.extract(carrier, parent)  # keeps the parent if the key is not valid
        chosen = keys.get("priority", priority)
        attributes = {"hami.priority": chosen} if isinstance(chosen, int) else {}
        return self._tracer.start_span("hami.request", parent, attributes=attributes)

    def __call__(self, requests: Any, timeout: float | None = None, *, priority: int | None = None) -> Any:
        if not isinstance(requests, list):
            span = self._start_span(requests, priority)
            return _ending([span], lambda: super(_TracedPipe, self).__call__(requests, timeout, priority=priority))
        spans = [self._start_span(request, priority) for request in requests]
        return _ending(spans, lambda: super(_TracedPipe, self).__call__(requests, timeout, priority=priority))

    def submit(self, request: Any, timeout: float | None = None, *, priority: int | None = None) -> Future[Any]:
        span = self._start_span(request, priority)
        try:
            future: Future[Any] = super().submit(request, timeout, priority=priority)
        except BaseException as error:
            _end(span, error)
            raise
        future.add_done_callback(lambda done: _end(span, _error_of(done)))
        return future

    async def acall(self, request: Any, timeout: float | None = None, *, priority: int | None = None) -> Any:
        span = self._start_span(request, priority)
        try:
            result = await super().acall(request, timeout, priority=priority)
        except BaseException as error:
            _end(span, error)
            raise
        _end(span, None)
        return result

    def stream(
        self, request: dict[str, Any], timeout: float | None = None, *, priority: int | None = None, buffer: int = 16
    ) -> Iterator[Any]:
        parts = super().stream(request, timeout, priority=priority, buffer=buffer)

        def traced() -> Iterator[Any]:
            span = self._start_span(request, priority)
            try:
                yield from parts
            except GeneratorExit:  # the caller has left the loop
                _end(span, None)
                raise
            except BaseException as error:
                _end(span, error)
                raise
            _end(span, None)

        return traced()

    def astream(
        self, request: dict[str, Any], timeout: float | None = None, *, priority: int | None = None, buffer: int = 16
    ) -> AsyncGenerator[Any, None]:
        parts = super().astream(request, timeout, priority=priority, buffer=buffer)

        async def traced() -> AsyncGenerator[Any, None]:
            span = self._start_span(request, priority)
            try:
                async for part in parts:
                    yield part
            except GeneratorExit:
                await parts.aclose()
                _end(span, None)
                raise
            except BaseException as error:
                _end(span, error)
                raise
            _end(span, None)

        return traced()


def _ending(spans: list[trace.Span], run: Any) -> Any:
    """Call a function, and end the span of each request with its outcome."""
    try:
        result = run()
    except BaseException as error:
        of_request = dict(error.errors) if isinstance(error, BatchError) and len(spans) > 1 else {}
        for index, span in enumerate(spans):
            _end(span, of_request.get(index) if of_request else error)
        raise
    for span in spans:
        _end(span, None)
    return result


def _error_of(future: Future[Any]) -> BaseException | None:
    from concurrent.futures import CancelledError

    return CancelledError("the request was cancelled") if future.cancelled() else future.exception()


def _end(span: trace.Span, error: BaseException | None) -> None:
    if error is not None:
        span.record_exception(error)
        span.set_status(trace.StatusCode.ERROR, f"{type(error).__name__}: {error}")
    span.end()

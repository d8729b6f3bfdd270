"""Metrics for Prometheus, and spans of OpenTelemetry."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Generator, Iterator
from typing import Any

import hami
import pytest
import running
from hami import _core

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}


@hami.register
class MetricsShare(hami.Backend):
    max = 4

    def forward(self, batch: list[hami.Request]) -> None:
        self.count("shares")
        for item in batch:
            item["result"] = 12 / item["data"]


@hami.register
class MetricsCount(hami.Backend):
    def forward(self, batch: list[hami.Request]) -> Generator[int, None, None]:
        yield from range(batch[0]["data"])


def registry_of(*arguments: Any) -> Any:
    prometheus_client = pytest.importorskip("prometheus_client")
    registry = prometheus_client.CollectorRegistry()
    registry.register(hami.observe.prometheus(*arguments))
    return registry


def test_the_metrics_are_those_of_stats() -> None:
    with hami.pipe({"share": {"backend": "MetricsShare", "batching": "greedy"}}) as pipe:
        value = registry_of(pipe).get_sample_value
        with pytest.raises(hami.BatchError):
            pipe([{"data": number} for number in (1, 2, 3, 4, 0, 6)])
        stats = pipe.stats()["share"]
        node = {"node": "share"}
        assert value("hami_node_submitted_total", node) == 6
        assert value("hami_node_failed_total", node) == 1
        assert value("hami_node_retried_total", node) == stats.retried
        assert value("hami_node_closed_total", {**node, "reason": "full"}) == stats.closed_full
        assert value("hami_node_compute_seconds_total", node) == pytest.approx(stats.compute_ms / 1000)
        assert value("hami_backend_count_total", {**node, "counter": "shares"}) == stats.counters["shares"]
        assert value("hami_backend_seconds_total", {**node, "backend": "MetricsShare"}) > 0
        assert value("hami_node_latency_seconds_count", node) == stats.latency_ms.count
        assert value("hami_node_latency_seconds_sum", node) == pytest.approx(stats.latency_ms.sum / 1000)


def test_buckets_are_cumulative_and_exact_for_sizes_of_batches() -> None:
    with hami.pipe({"share": {"backend": "MetricsShare", "batching": "greedy"}}) as pipe:
        value = registry_of(pipe).get_sample_value
        pipe([{"data": number} for number in (1, 2, 3, 4)])
        pipe({"data": 1})
        bounds = ("1.0", "2.0", "4.0", "1024.0", "+Inf")
        sizes = [value("hami_node_batch_size_bucket", {"node": "share", "le": bound}) for bound in bounds]
        assert sizes == [1, 1, 2, 2, 2]


def test_several_pipes_and_their_lanes_have_labels_and_may_come_and_go() -> None:
    pipes: dict[str, hami.Pipe] = {}
    value = registry_of(pipes).get_sample_value
    with hami.pipe("Identity") as first, hami.pipe("Identity") as second:
        pipes.update(first=first, second=second)
        first({"data": 1}, priority=255)
        labels = {"pipe": "first", "node": "default"}
        assert value("hami_lane_completed_total", {**labels, "lane": "urgent"}) == 1
        assert value("hami_lane_completed_total", {**labels, "lane": "normal"}) == 0
        assert value("hami_lane_latency_seconds_count", {**labels, "lane": "urgent"}) == 1
        assert value("hami_lane_queue_seconds_count", {**labels, "lane": "normal"}) == 0
        assert value("hami_node_submitted_total", {"pipe": "second", "node": "default"}) == 0
        del pipes["first"]
        assert value("hami_node_submitted_total", labels) is None


def test_metrics_of_something_else_are_an_error() -> None:
    pytest.importorskip("prometheus_client")
    with pytest.raises(hami.DataTypeError, match="takes a pipe or a mapping from names to pipes, got list"):
        hami.observe.prometheus([])  # type: ignore[arg-type]


@pytest.fixture
def spans() -> Iterator[Any]:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    finished: queue.SimpleQueue[Any] = queue.SimpleQueue()
    of_nodes: list[Any] = []

    class Keeper(sdk.SpanProcessor):  # type: ignore[misc]
        def on_end(self, span: Any) -> None:
            of_nodes.append(span) if span.name == "hami.node" else finished.put(span)

    provider = sdk.TracerProvider()
    provider.add_span_processor(Keeper())

    class Spans:
        def of(self, pipe: hami.Pipe, attributes: dict[str, str] | None = None) -> hami.Pipe:
            return hami.observe.opentelemetry(pipe, provider, attributes)

        def outcomes(self, count: int) -> list[str]:
            return [span.status.status_code.name for span in self.take(count)]

        def take(self, count: int) -> list[Any]:
            """The next spans that end: a future is done shortly before its span. No other span may have ended."""
            found = [finished.get(timeout=20) for _ in range(count)]
            assert finished.empty()
            return found

        def nodes_of(self, request: Any) -> list[Any]:
            """Those that end before the span of the request does."""
            return [span for span in of_nodes if span.parent.span_id == request.context.span_id]

        tracer = provider.get_tracer("test")

    yield Spans()
    provider.shutdown()


def test_a_span_has_the_parent_that_the_request_names(spans: Any) -> None:
    with hami.pipe("Identity") as pipe:
        assert spans.of(pipe)({"data": 1, **PARENT}, priority=254)["result"] == 1
    (span,) = spans.take(1)
    assert span.name == "hami.request"
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
    assert span.attributes["hami.priority"] == 254


@pytest.mark.parametrize("given", [{}, {"traceparent": "nonsense"}, {"traceparent": 7}])
def test_without_a_valid_traceparent_the_parent_is_the_current_span(spans: Any, given: dict[str, Any]) -> None:
    with hami.pipe("Identity") as pipe, spans.tracer.start_as_current_span("caller") as caller:
        spans.of(pipe)({"data": 1, **given})
        (span,) = spans.take(1)
        assert span.parent.span_id == caller.get_span_context().span_id


def test_each_request_of_a_list_has_a_span_with_its_own_outcome(spans: Any) -> None:
    with hami.pipe("MetricsShare") as pipe, pytest.raises(hami.BatchError):
        spans.of(pipe)([{"data": 1}, {"data": 0}, {"data": 2}])
    found = spans.take(3)
    assert [span.status.status_code.name for span in found] == ["UNSET", "ERROR", "UNSET"]
    assert found[1].events[0].attributes["exception.type"] == "ZeroDivisionError"


def test_every_way_to_call_records_one_span_for_each_request(spans: Any) -> None:
    with hami.pipe("MetricsShare") as pipe:
        traced = spans.of(pipe)
        traced.submit({"data": 1}).result()
        assert spans.outcomes(1) == ["UNSET"]
        with pytest.raises(ZeroDivisionError):
            traced.submit({"data": 0}).result()
        assert spans.outcomes(1) == ["ERROR"]
        assert len(list(traced.map({"data": number} for number in (1, 2, 3)))) == 3
        assert spans.outcomes(3) == ["UNSET"] * 3
        asyncio.run(traced.acall({"data": 1}))
        assert spans.outcomes(1) == ["UNSET"]
        with pytest.raises(ZeroDivisionError):
            asyncio.run(traced.acall({"data": 0}))
        assert spans.outcomes(1) == ["ERROR"]
        with pytest.raises(hami.DataTypeError):
            traced(7)
        assert spans.outcomes(1) == ["ERROR"]


def test_a_request_has_a_span_for_each_node_that_it_visits(spans: Any) -> None:
    source = {"first": {"backend": "Identity", "next": "second"}, "second": {"backend": "MetricsShare"}}
    request: dict[str, Any] = {"data": 1}
    with hami.pipe(source) as pipe:
        spans.of(pipe)(request)
    (span,) = spans.take(1)
    first, second = spans.nodes_of(span)
    assert [each.attributes["hami.node"] for each in (first, second)] == ["first", "second"]
    assert [event.name for event in second.events] == ["batch started"]
    assert second.start_time <= second.events[0].timestamp <= second.end_time
    assert {each.context.trace_id for each in (first, second)} == {span.context.trace_id}
    assert request == {"data": 1, "result": 12}


def test_the_exception_of_a_request_that_native_code_has_made_has_the_moment_of_its_end(spans: Any) -> None:
    with hami.pipe("Identity") as pipe:
        spans.of(pipe).record({}, hami.RequestError("wrong"), 1_000, 2_000)
    (span,) = spans.take(1)
    (event,) = span.events
    assert (span.start_time, event.name, event.timestamp, span.end_time) == (1_000, "exception", 2_000, 2_000)


def test_every_way_to_call_has_spans_of_nodes(spans: Any) -> None:
    async def parts() -> list[int]:
        return [part async for part in traced.astream({"data": 1})]

    with hami.pipe("MetricsCount") as pipe:
        traced = spans.of(pipe)
        traced.submit({"data": 1}).result()
        traced([{"data": 1}, {"data": 2}])
        asyncio.run(traced.acall({"data": 1}))
        request: dict[str, Any] = {"data": 1}
        assert list(traced.stream(request)) == [0]
        assert asyncio.run(parts()) == [0]
        assert request == {"data": 1, "result": None}
    for span in spans.take(6):
        assert [each.attributes["hami.node"] for each in spans.nodes_of(span)] == ["default"]


class Untested(Exception):
    def __bool__(self) -> bool:
        raise LookupError

    __str__ = __bool__  # type: ignore[assignment]


def test_a_span_ends_if_its_error_cannot_be_shown(spans: Any) -> None:
    def fail(data: Any) -> None:
        raise Untested

    running.each(fail, "MetricsUntested")
    with hami.pipe("MetricsUntested") as pipe, pytest.raises(Untested):
        spans.of(pipe)({"data": 0})
    (span,) = spans.take(1)
    assert (span.status.status_code.name, span.status.description) == ("ERROR", "Untested: ")


def test_the_span_of_the_node_at_which_a_request_fails_has_an_error(spans: Any) -> None:
    with hami.pipe({"first": {"backend": "Identity", "next": "share"}, "share": {"backend": "MetricsShare"}}) as pipe:
        with pytest.raises(ZeroDivisionError):
            spans.of(pipe)({"data": 0})
        (span,) = spans.take(1)
    found = {each.attributes["hami.node"]: each.status.status_code.name for each in spans.nodes_of(span)}
    assert found == {"first": "UNSET", "share": "ERROR"}


def test_a_cancelled_request_has_a_span_of_the_node_where_it_was(spans: Any) -> None:
    gated = running.gated("MetricsGate")
    with hami.pipe("MetricsGate") as pipe:
        future = spans.of(pipe).submit({"data": 1})
        gated.gate.wait_for_arrival()
        future.cancel()
        (span,) = spans.take(1)
        gated.gate.open()
    (node,) = spans.nodes_of(span)
    assert (node.attributes["hami.node"], node.status.status_code.name) == ("default", "ERROR")
    assert node.end_time <= span.end_time


def test_a_request_that_is_not_sampled_records_no_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    sampling = pytest.importorskip("opentelemetry.sdk.trace.sampling")
    provider = pytest.importorskip("opentelemetry.sdk.trace").TracerProvider(sampler=sampling.ALWAYS_OFF)
    monkeypatch.setattr(_core, "record_visits", lambda: pytest.fail("visits are recorded"))
    with hami.pipe("Identity") as pipe:
        assert hami.observe.opentelemetry(pipe, provider)({"data": 1})["result"] == 1
    provider.shutdown()


def test_only_the_visits_of_a_request_can_be_read() -> None:
    with hami.pipe("Identity") as pipe:
        request: dict[str, Any] = {"data": 1, "hami.visits": 5}
        assert pipe(request) == {"data": 1, "hami.visits": 5, "result": 1}
        request["hami.visits"] = recorded = _core.record_visits()
        pipe(request)
    ((node, arrived, started, ended, failed),) = _core.visits_in(recorded)
    assert (node, failed) == ("default", False)
    assert started is not None
    assert ended is not None
    assert arrived <= started <= ended


def test_the_times_of_a_request_are_those_of_its_nodes_also_if_it_is_traced(spans: Any) -> None:
    source = {"first": {"backend": "Identity", "next": "second"}, "second": {"backend": "MetricsShare"}}
    with hami.pipe(source) as pipe:
        for used in (pipe, spans.of(pipe, {"model": "m"})):
            request: dict[str, Any] = {"data": 3}
            with hami.observe.RequestTimes(request) as times:
                used(request)
            assert request == {"data": 3, "result": 4.0}
            assert times.queue_s > 0
            assert times.compute_s > 0
            assert times.compute_s == times.compute_s  # it has ended
    (span,) = spans.take(1)
    assert span.attributes == {"model": "m"}
    nodes = spans.nodes_of(span)
    assert [node.attributes["hami.node"] for node in nodes] == ["first", "second"]
    assert times.compute_s == pytest.approx(sum((each.end_time - each.events[0].timestamp) / 1e9 for each in nodes))


def test_the_times_of_a_request_that_fails_are_known(spans: Any) -> None:
    with hami.pipe("MetricsShare") as pipe:
        request: dict[str, Any] = {"data": 0}
        with pytest.raises(ZeroDivisionError), hami.observe.RequestTimes(request) as times:
            pipe(request)
        assert times.compute_s > 0


def test_a_traced_pipe_can_be_replaced(spans: Any) -> None:
    with hami.pipe("Identity") as pipe:
        traced = hami.observe.opentelemetry(pipe)
        traced.replace("S[Identity,Identity]")
        assert traced({"data": 1})["result"] == 1
        assert pipe({"data": 2})["result"] == 2


def test_a_stream_is_one_span(spans: Any) -> None:
    async def parts() -> list[int]:
        return [part async for part in traced.astream({"data": 3})]

    with hami.pipe("MetricsCount") as pipe:
        traced = spans.of(pipe)
        assert list(traced.stream({"data": 3})) == [0, 1, 2]
        assert asyncio.run(parts()) == [0, 1, 2]
        for _ in traced.stream({"data": 3}):
            break
    assert spans.outcomes(3) == ["UNSET"] * 3

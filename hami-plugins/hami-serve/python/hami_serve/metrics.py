"""Prometheus metrics of a server: its models, and the nodes of their pipes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from hami_serve.model import Model, State
from hami_serve.rounder import AllRounder

CONTENT_TYPE = CONTENT_TYPE_LATEST
MODEL = ("model", "version")
NODE = (*MODEL, "node")
NODE_COUNTERS = {
    "submitted": "Requests that arrived at the node.",
    "completed": "Requests that ran without an error.",
    "failed": "Requests that ended with an error.",
    "rejected": "Requests that a full queue or a closed pipe rejected.",
    "expired": "Requests whose timeout passed.",
    "cancelled": "Requests that their caller cancelled.",
    "retried": "Requests that ran once more, alone.",
    "batches": "Batches that instances took.",
    "batch_items": "Items in these batches.",
    "model_calls": "Calls of the backend.",
}
NODE_GAUGES = {"waiting": "Requests in the queue.", "running": "Requests in an instance."}


def metrics(rounder: AllRounder) -> bytes:
    """Return all metrics in the text format of Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Models(rounder))
    return generate_latest(registry)


class _Models(Collector):
    def __init__(self, rounder: AllRounder) -> None:
        self._rounder = rounder

    def collect(self) -> Iterator[Metric]:
        registry = self._rounder.registry
        models = [model for model in registry.models() if model.state is not State.DRAINING]
        yield from _of_models(models)
        yield from _of_nodes(models)


def _of_models(models: Iterable[Model]) -> Iterator[Metric]:
    ready = GaugeMetricFamily("hami_serve_model_ready", "1 if the model is ready, else 0.", labels=MODEL)
    in_flight = GaugeMetricFamily("hami_serve_requests_in_flight", "Requests that run now.", labels=MODEL)
    requests = CounterMetricFamily("hami_serve_requests", "Requests that have ended.", labels=(*MODEL, "outcome"))
    seconds = CounterMetricFamily("hami_serve_request_seconds", "Time of these requests.", labels=(*MODEL, "outcome"))
    for model in models:
        labels = [model.handle.component, model.handle.version]
        ready.add_metric(labels, float(model.state is State.READY))
        in_flight.add_metric(labels, model.in_flight)
        requests.add_metric([*labels, "success"], model.calls - model.failures)
        requests.add_metric([*labels, "failure"], model.failures)
        seconds.add_metric([*labels, "success"], model.success_ns / 1e9)
        seconds.add_metric([*labels, "failure"], model.failure_ns / 1e9)
    found: tuple[Metric, ...] = (ready, in_flight, requests, seconds)
    yield from found


def _of_nodes(models: Iterable[Model]) -> Iterator[Metric]:
    counters = {key: CounterMetricFamily(f"hami_node_{key}", text, labels=NODE) for key, text in NODE_COUNTERS.items()}
    gauges = {key: GaugeMetricFamily(f"hami_node_{key}", text, labels=NODE) for key, text in NODE_GAUGES.items()}
    compute = CounterMetricFamily("hami_node_compute_seconds", "Time inside the backend.", labels=NODE)
    for model in models:
        if (pipe := model.pipe) is None:
            continue
        for name, stats in pipe.stats().items():
            labels = [model.handle.component, model.handle.version, name]
            for key, family in (counters | gauges).items():
                family.add_metric(labels, getattr(stats, key))
            compute.add_metric(labels, stats.compute_ms / 1000)
    yield from counters.values()
    yield from gauges.values()
    yield compute

"""Prometheus metrics of a server: its models, and the nodes of their pipes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import hami
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from hami_serve.model import Model, State
from hami_serve.rounder import AllRounder

CONTENT_TYPE = CONTENT_TYPE_LATEST
MODEL = ("model", "version")


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
        pipes = {(model.handle.component, model.handle.version): model.pipe for model in models if model.pipe}
        yield from hami.observe.prometheus(pipes, MODEL).collect()


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

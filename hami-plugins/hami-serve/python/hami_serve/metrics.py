"""Prometheus metrics of a server: its models, and the nodes of their pipes."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import hami
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from hami_serve.model import Model, State
from hami_serve.rounder import AllRounder


class Answers:
    """How many requests of this process were answered with each status, those that reached no model included."""

    def __init__(self) -> None:
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Begin without the answers of the parent, and with a lock that none of its threads may hold."""
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def count(self, protocol: str, code: int | str, times: int = 1) -> None:
        """Count answers with a status of HTTP or the name of a code of gRPC."""
        with self._lock:
            self._counts[protocol, str(code)] += times

    def family(self) -> Metric:
        found = CounterMetricFamily("hami_serve_answers", "Answers by their status.", labels=("protocol", "code"))
        with self._lock:
            for labels, count in sorted(self._counts.items()):
                found.add_metric(labels, count)
        return found


answers = Answers()
os.register_at_fork(after_in_child=answers.reset_after_fork)
CONTENT_TYPE = CONTENT_TYPE_LATEST
MODEL = ("model", "version")


def families(rounder: AllRounder) -> list[Metric]:
    """Return all metrics of this process."""
    models = [model for model in rounder.registry.models() if model.state is not State.DRAINING]
    pipes = {(model.handle.component, model.handle.version): model.pipe for model in models if model.pipe}
    return [answers.family(), *_of_models(models), *hami.observe.prometheus(pipes, MODEL).collect()]


def text(families: Iterable[Metric]) -> bytes:
    """Return metrics in the text format of Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(list(families)))
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def packed(families: Iterable[Metric]) -> list[Any]:
    """Return metrics in a form that JSON can represent."""
    return [[each.name, each.documentation, each.type, [[*sample[:3]] for sample in each.samples]] for each in families]


def of_workers(answers: Mapping[int, Any], count: int) -> list[Metric]:
    """Return the metrics of all workers, from packed metrics by worker; the label `worker` tells them apart."""
    up = GaugeMetricFamily("hami_serve_worker_up", "1 if the worker answers, else 0.", labels=("worker",))
    found: dict[str, Metric] = {}
    for number in range(count):
        up.add_metric([str(number)], float(number in answers))
        for name, documentation, kind, samples in answers.get(number, ()):
            family = found.setdefault(name, Metric(name, documentation, kind))
            for sample, labels, value in samples:
                family.add_sample(sample, {"worker": str(number), **labels}, value)
    return [up, *found.values()]


def _of_models(models: Iterable[Model]) -> Iterator[Metric]:
    ready = GaugeMetricFamily("hami_serve_model_ready", "1 if the model is ready, else 0.", labels=MODEL)
    in_flight = GaugeMetricFamily("hami_serve_requests_in_flight", "Requests that run now.", labels=MODEL)
    requests = CounterMetricFamily("hami_serve_requests", "Requests that have ended.", labels=(*MODEL, "outcome"))
    seconds = CounterMetricFamily("hami_serve_request_seconds", "Time of these requests.", labels=(*MODEL, "outcome"))
    for model in models:
        labels = [model.handle.component, model.handle.version]
        ready.add_metric(labels, float(model.state is State.READY))
        in_flight.add_metric(labels, model.in_flight + model.native_in_flight)
        requests.add_metric([*labels, "success"], model.calls - model.failures)
        requests.add_metric([*labels, "failure"], model.failures)
        seconds.add_metric([*labels, "success"], model.success_ns / 1e9)
        seconds.add_metric([*labels, "failure"], model.failure_ns / 1e9)
    found: tuple[Metric, ...] = (ready, in_flight, requests, seconds)
    yield from found

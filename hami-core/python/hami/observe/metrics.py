"""Statistics of pipes as metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Protocol

from hami._errors import ConfigError, DataTypeError
from hami.observe.histogram import Histogram
from hami.observe.node_stats import COUNTS as LANE_COUNTS
from hami.observe.node_stats import NodeStats

try:
    from prometheus_client.metrics_core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
    from prometheus_client.registry import Collector
except ImportError:
    raise ConfigError('prometheus() needs prometheus-client: pip install "hami-core[metrics]"') from None

COUNTERS = {
    "submitted": "Requests that arrived at the node.",
    "completed": "Requests that ran without an error.",
    "failed": "Requests that ended with an error.",
    "rejected": "Requests that a full queue or a closed pipe rejected.",
    "dropped": "Of the rejected requests: those that left a full queue for a newer one.",
    "expired": "Requests whose timeout passed.",
    "cancelled": "Requests that their caller cancelled.",
    "retried": "Requests that ran once more, alone.",
    "batches": "Batches that instances took.",
    "batch_items": "Items in these batches.",
    "inline_batches": "Batches that ran on the thread of a caller.",
    "model_calls": "Calls of the backend.",
}
GAUGES = {
    "waiting": "Requests in the queue.",
    "running": "Requests in an instance.",
    "queued_bytes": "Bytes of the values of the waiting requests.",
}
CLOSED = ("full", "target_size", "timeout", "queue_empty")
SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ITEMS = tuple(float(1 << power) for power in range(11))

Labels = tuple[str, ...]


class Pipe(Protocol):
    """A `hami.Pipe`, of which only the statistics are read."""

    def stats(self) -> dict[str, NodeStats]: ...


def prometheus(pipes: Pipe | Mapping[Any, Pipe], labels: Sequence[str] = ("pipe",)) -> Collector:
    """Return a collector of the statistics of one or several pipes, for a registry of prometheus-client.

    >>> from prometheus_client import CollectorRegistry
    >>> registry = CollectorRegistry()
    >>> with hami.pipe("Identity") as pipe:
    ...     registry.register(hami.observe.prometheus({"echo": pipe}))
    ...     request = pipe({"data": 1})
    ...     registry.get_sample_value("hami_node_completed_total", {"pipe": "echo", "node": "default"})
    1.0

    Each scrape reads the statistics; between scrapes nothing runs. A mapping is read at each scrape, so that the
    program may add and remove pipes.

    Args:
        pipes: A pipe, whose metrics have the label `node`; or a mapping from a name to a pipe.
        labels: With a mapping: the names of the labels that tell the pipes apart. For several labels, a key of the
            mapping is a tuple of that length.

    Raises:
        ConfigError: prometheus-client is not installed.
        DataTypeError: `pipes` is neither a pipe nor a mapping.
    """
    if isinstance(pipes, Mapping):
        return _Collector(pipes, tuple(labels))
    if not hasattr(pipes, "stats"):
        raise DataTypeError(f"prometheus() takes a pipe or a mapping from names to pipes, got {type(pipes).__name__}")
    return _Collector({(): pipes}, ())


class _Collector(Collector):
    def __init__(self, pipes: Mapping[Any, Pipe], labels: Labels) -> None:
        self._pipes = pipes
        self._labels = (*labels, "node")

    def collect(self) -> Iterator[Metric]:
        nodes = [
            ((*_values(key), name), stats)
            for key, pipe in list(self._pipes.items())
            for name, stats in pipe.stats().items()
        ]
        yield from _totals(nodes, self._labels)
        yield from _lanes(nodes, self._labels)
        yield from _histograms(nodes, self._labels)


def _values(key: Any) -> Labels:
    return tuple(map(str, key)) if isinstance(key, tuple) else (str(key),)


Nodes = Iterable[tuple[Labels, NodeStats]]


def _totals(nodes: Nodes, labels: Labels) -> Iterator[Metric]:
    counters = {key: CounterMetricFamily(f"hami_node_{key}", text, labels=labels) for key, text in COUNTERS.items()}
    gauges = {key: GaugeMetricFamily(f"hami_node_{key}", text, labels=labels) for key, text in GAUGES.items()}
    compute = CounterMetricFamily("hami_node_compute_seconds", "Time inside the backend.", labels=labels)
    uptime = GaugeMetricFamily("hami_node_uptime_seconds", "Time since the pipe was built.", labels=labels)
    closed = CounterMetricFamily("hami_node_closed", "Batches, by why they started.", labels=(*labels, "reason"))
    backends = CounterMetricFamily("hami_backend_seconds", "Time inside each backend.", labels=(*labels, "backend"))
    counted = CounterMetricFamily("hami_backend_count", "What the backends count.", labels=(*labels, "counter"))
    for values, stats in nodes:
        for key, family in (counters | gauges).items():
            family.add_metric(values, float(getattr(stats, key)))
        compute.add_metric(values, stats.compute_ms / 1000)
        uptime.add_metric(values, stats.uptime_s)
        for reason in CLOSED:
            closed.add_metric([*values, reason], getattr(stats, f"closed_{reason}"))
        for backend, milliseconds in stats.backend_ms.items():
            backends.add_metric([*values, backend], milliseconds / 1000)
        for name, count in stats.counters.items():
            counted.add_metric([*values, name], count)
    yield from (*counters.values(), *gauges.values(), compute, uptime, closed, backends, counted)


def _lanes(nodes: Nodes, labels: Labels) -> Iterator[Metric]:
    families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
    for key in sorted(LANE_COUNTS):
        kind = GaugeMetricFamily if key in GAUGES else CounterMetricFamily
        text = (GAUGES | COUNTERS)[key]
        families[key] = kind(f"hami_lane_{key}", f"Of one class of service: {text}", labels=(*labels, "lane"))
    for values, stats in nodes:
        for lane, counts in stats.lanes.items():
            for key, family in families.items():
                family.add_metric([*values, lane], getattr(counts, key))
    yield from families.values()


def _histograms(nodes: Nodes, labels: Labels) -> Iterator[Metric]:
    lanes = [((*values, lane), counts) for values, stats in nodes for lane, counts in stats.lanes.items()]
    for key, text in (
        ("queue", "Time of each request in the queue."),
        ("batch", "Time of each batch."),
        ("latency", "Time of each request at the node."),
    ):
        rows = [(values, getattr(stats, f"{key}_ms")) for values, stats in nodes]
        yield _seconds(f"hami_node_{key}_seconds", text, labels, rows)
        if key != "batch":  # a batch may have requests of several classes
            rows = [(values, getattr(lane, f"{key}_ms")) for values, lane in lanes]
            yield _seconds(f"hami_lane_{key}_seconds", f"Of one class of service: {text}", (*labels, "lane"), rows)
    sizes = HistogramMetricFamily("hami_node_batch_size", "Items of each batch.", labels=labels)
    for values, stats in nodes:
        sizes.add_metric(values, _buckets(stats.batch_sizes, ITEMS, 1.0), stats.batch_sizes.sum)
    yield sizes


def _seconds(name: str, text: str, labels: Labels, rows: Iterable[tuple[Labels, Histogram]]) -> Metric:
    family = HistogramMetricFamily(name, text, labels=labels)
    for values, histogram in rows:
        family.add_metric(values, _buckets(histogram, SECONDS, 1000.0), histogram.sum / 1000)
    return family


def _buckets(histogram: Histogram, bounds: Sequence[float], scale: float) -> list[tuple[str, float]]:
    """Return the cumulative counts up to each bound; `scale` is the number of units of the histogram in one."""
    counts = [0] * (len(bounds) + 1)
    for lower, _, count in histogram.buckets:
        place = next((place for place, bound in enumerate(bounds) if lower <= bound * scale), len(bounds))
        counts[place] += count
    return [(bound, float(count)) for bound, count in zip([*map(str, bounds), "+Inf"], accumulate(counts), strict=True)]

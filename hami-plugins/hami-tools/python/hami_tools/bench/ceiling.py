"""The ceiling of a pipe: the rate of the backends of its slowest node alone, in batches of the best size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hami import Pipe
from hami.native import load_pipe

from hami_tools.bench.point import Stats
from hami_tools.instances import instances_of

PLATEAU = 0.95  # of the best rate; the smallest batch that reaches it is the plateau
MIN_SECONDS = 0.2  # of the measurement of each batch size
MAX_BATCH = 64  # tried if the configuration does not limit the batch
GROWTH = 1.01  # of the batches of any node; below, larger calls have no larger batches


@dataclass(frozen=True)
class NodeCeiling:
    """The rate of a node whose instances run without a pause and without slowing each other down."""

    node: str
    instances: int
    batch_ms: dict[float, float]
    """The mean time of a batch by its size, with one instance at work."""
    items_per_request: float
    """Items of the node for each request of the pipe; 0.5 if a filter passes every second request."""

    def rate_at(self, size: float) -> float:
        """Return the requests of the pipe per second in batches of a measured size."""
        return self.instances * size * 1e3 / self.batch_ms[size] / self.items_per_request

    @property
    def best_size(self) -> float:
        """Return the batch size with the best rate."""
        return max(self.batch_ms, key=self.rate_at)

    @property
    def rate(self) -> float:
        """Return the best rate in requests of the pipe per second."""
        return self.rate_at(self.best_size)

    @property
    def plateau(self) -> float:
        """Return the smallest measured batch size with nearly the best rate."""
        return min(size for size in self.batch_ms if self.rate_at(size) >= PLATEAU * self.rate)

    def expected_ms(self, size: float) -> float:
        """Return the time of a batch of any size, interpolated between the measured ones."""
        sizes = sorted(self.batch_ms)
        below = max((known for known in sizes if known <= size), default=sizes[0])
        above = min((known for known in sizes if known >= size), default=sizes[-1])
        if below == above:
            return self.batch_ms[below] * size / below
        part = (size - below) / (above - below)
        return self.batch_ms[below] * (1 - part) + self.batch_ms[above] * part

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as a dict, for JSON."""
        return {
            "node": self.node,
            "instances": self.instances,
            "batches": [
                {"items": size, "ms": time, "throughput": self.rate_at(size)}
                for size, time in sorted(self.batch_ms.items())
            ],
            "plateau_batch": self.plateau,
            "throughput": self.rate,
        }


def measure_ceilings(pipe: Pipe, inputs: Sequence[Mapping[str, Any]], seconds: float) -> list[NodeCeiling]:
    """Run batches of increasing size, one at a time, and return the ceiling of each node, the lowest first.

    The list is empty if no request completes.

    Args:
        pipe: A pipe whose nodes have `batching = "off"`: the requests of one call are one batch.
        inputs: Requests, chosen at random.
        seconds: Time of all measurements together.
    """
    instances = {name: instances_of(node["batching"]) for name, node in pipe.describe()["nodes"].items()}
    most = max(_setting(node["batching"], "max", MAX_BATCH) for node in pipe.describe()["nodes"].values())
    times: dict[str, dict[float, float]] = {name: {} for name in instances}
    items_per_request: dict[str, float] = {}
    for size in sizes_up_to(most):
        grown = False
        before, after, requests = _run(pipe, inputs, size, max(MIN_SECONDS, seconds / len(sizes_up_to(most))))
        for name in instances:
            batches = after[name].batches - before[name].batches
            items = after[name].batch_items - before[name].batch_items
            if not batches or not requests:
                continue
            mean = items / batches
            grown = grown or mean > GROWTH * max(times[name], default=0.0)
            times[name][mean] = (after[name].compute_ms - before[name].compute_ms) / batches
            items_per_request[name] = items / requests
        if not grown:
            break
    found = [
        NodeCeiling(name, instances[name], times[name], items_per_request[name])
        for name in instances
        if times[name] and min(times[name].values()) > 0
    ]
    return sorted(found, key=lambda node: node.rate)


def sizes_up_to(most: int) -> list[int]:
    """Return the powers of two up to a number, and the number itself."""
    sizes = [1 << power for power in range(most.bit_length()) if 1 << power <= most]
    return sizes if sizes[-1] == most else [*sizes, most]


def _run(pipe: Pipe, inputs: Sequence[Mapping[str, Any]], size: int, seconds: float) -> tuple[Stats, Stats, int]:
    """Call the pipe with `size` requests at a time; return statistics before and after, and completed requests."""
    run, requests = partial(load_pipe, pipe), [dict(request) for request in inputs]
    run(requests, clients=1, per_call=size, calls=1)
    before = pipe.stats()
    measured = run(requests, clients=1, per_call=size, duration=seconds)
    return before, pipe.stats(), measured["completed"]


def _setting(batching: Mapping[str, Any], name: str, default: int) -> int:
    value = batching.get(name)
    return value if isinstance(value, int) and value >= 1 else default


def ceiling_settings(nodes: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the settings KEY=VALUE with which the requests of one call are one batch."""
    for name, node in nodes.items():
        for key, value in (("batching", "off"), ("batching_timeout", "0")):
            if key in node["batching"]:
                yield f"{name}.{key}={value}"

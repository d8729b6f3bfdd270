"""How far a load stays below the ceiling, by cause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hami_tools.bench.ceiling import NodeCeiling
from hami_tools.bench.point import Point
from hami_tools.machine import cpus

ALL_CORES = 0.85  # of the CPUs in use: threads wait for a core
ONE_CORE = (0.7, 1.3)  # CPUs in use by threads that wait for each other's GIL

CAUSES = {
    "idle": "device idle: no request to run",
    "host_work": "host work: requests are with callers or in other nodes",
    "queue": "queue: requests wait for a batch to start",
    "small_batches": "waiting for batches: they start below the plateau size",
    "gil": "GIL: Python backends wait for each other",
    "cpu": "CPU: more work at a time than cores",
    "contention": "contention: batches ran slower than alone, beside other threads",
    "failed": "failed requests and retries",
}
"""What keeps a load below the ceiling."""


@dataclass(frozen=True)
class Losses:
    """The gap between the ceiling and a load, in requests per second, by cause. The causes add up to the gap."""

    node: str
    ceiling: float
    achieved: float
    causes: dict[str, float]
    """By the keys of `CAUSES`, the largest first. All are negative if the load did better than the backend alone."""

    @property
    def gap(self) -> float:
        """Return the requests per second by which the load stays below the ceiling."""
        return self.ceiling - self.achieved

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as a dict, for JSON."""
        return {
            "node": self.node,
            "ceiling": self.ceiling,
            "achieved": self.achieved,
            "gap": self.gap,
            "causes": self.causes,
        }


def losses(ceiling: NodeCeiling, point: Point, *, in_python: bool) -> Losses:
    """Return what keeps a load below the ceiling of a node.

    The time of all instances during the measurement is what batches of the best size would have taken, plus the extra
    time of smaller batches, plus the time by which batches ran slower than alone, plus the time without a batch. The
    last is divided by where requests were meanwhile. Times become rates: the ceiling is lost in the same proportion as
    the time.

    Args:
        ceiling: The ceiling of the node.
        point: The measurement.
        in_python: Whether backends of the node are in Python.
    """
    after, before = point.after[ceiling.node], point.before[ceiling.node]
    available_ms = ceiling.instances * point.elapsed_s * 1e3
    items = after.batch_items - before.batch_items
    compute_ms = after.compute_ms - before.compute_ms
    best_ms = items * ceiling.batch_ms[ceiling.best_size] / ceiling.best_size
    sizes = after.batch_sizes - before.batch_sizes
    expected_ms = sum(count * ceiling.expected_ms((low + high) / 2) for low, high, count in sizes.buckets)
    useful = point.completed * ceiling.items_per_request
    causes_ms = {
        "small_batches": expected_ms - best_ms,
        _contention(point, in_python=in_python): compute_ms - expected_ms,
        **_idle_causes(available_ms - compute_ms, ceiling, point),
        "failed": best_ms * (1 - useful / items) if items else 0.0,
    }
    causes = {cause: time / available_ms * ceiling.rate for cause, time in causes_ms.items()}
    causes = _within_offer(_set_off(causes), ceiling.rate, point)
    return Losses(ceiling.node, ceiling.rate, point.throughput, dict(sorted(causes.items(), key=lambda item: -item[1])))


def _set_off(causes: dict[str, float]) -> dict[str, float]:
    """Set off what made a load faster against what made it slower, in proportion, so that shares are at most the gap.

    The times of batch sizes alone are estimates. Where they are wrong, one cause is too large and another one negative.
    """
    gap = sum(causes.values())
    same = sum(rate for rate in causes.values() if rate * gap > 0)
    return {cause: rate * gap / same if rate * gap > 0 else 0.0 for cause, rate in causes.items()}


def _idle_causes(idle_ms: float, ceiling: NodeCeiling, point: Point) -> dict[str, float]:
    """Divide the time without a batch by where the requests were: an instance can be filled by one of them at least."""
    after, before = point.after[ceiling.node], point.before[ceiling.node]
    queue_ms = max(0.0, (after.queue_ms - before.queue_ms).sum)
    at_node_ms = (after.latency_ms - before.latency_ms).sum
    total_ms = point.latency_ms.sum
    if not point.load.is_open:  # a client without a running request is about to start one
        total_ms = max(total_ms, point.load.clients * point.load.per_call * point.elapsed_s * 1e3)
    elsewhere_ms = max(0.0, total_ms - at_node_ms)
    filled_ms = min(idle_ms, queue_ms + elsewhere_ms)
    in_queue = queue_ms / (queue_ms + elsewhere_ms) if queue_ms + elsewhere_ms else 0.0
    return {
        "queue": filled_ms * in_queue,
        "host_work": filled_ms * (1 - in_queue),
        "idle": idle_ms - filled_ms,
    }


def _contention(point: Point, *, in_python: bool) -> str:
    """Name what instances compete for, by the CPUs that the process used."""
    used, present = point.cpu_s / point.elapsed_s, cpus()
    if used >= ALL_CORES * present:
        return "cpu"
    return "gil" if in_python and ONE_CORE[0] <= used <= ONE_CORE[1] else "contention"


def _within_offer(causes: dict[str, float], ceiling: float, point: Point) -> dict[str, float]:
    """Attribute to `idle` what an open loop did not ask for; the other causes share the rest of the gap."""
    gap = sum(causes.values())
    if point.load.is_open and gap > 0:
        offered = (point.completed + sum(point.failed.values())) / point.elapsed_s
        not_asked = min(gap, max(0.0, ceiling - offered))
        rest = (gap - not_asked) / gap
        causes = {cause: rate * rest for cause, rate in causes.items()}
        causes["idle"] += not_asked
    return causes

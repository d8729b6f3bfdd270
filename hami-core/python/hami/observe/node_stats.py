"""The statistics of one node, and of each class of service there, as `Pipe.stats` returns them."""

from __future__ import annotations

from hami.observe.histogram import Histogram, Snapshot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class LaneStats(Snapshot):
    """What became of the requests of one class of service at a node: urgent, high or normal.

    >>> with hami.pipe("Identity") as pipe:
    ...     request = pipe({"data": 1}, priority=255)
    ...     lanes = pipe.stats()["default"].lanes
    >>> lanes["urgent"].completed, lanes["normal"].completed
    (1, 0)
    """

    submitted: int
    """Requests that arrived. Each is waiting or running, or has ended in exactly one of the five outcomes below."""
    completed: int
    """Requests that ended without an error."""
    failed: int
    """Requests that ended with an error that is not counted below."""
    rejected: int
    """Requests that were rejected before they ran."""
    expired: int
    """Requests whose timeout or deadline passed."""
    cancelled: int
    """Requests that were cancelled by their caller."""
    waiting: int
    """Requests in the queue now."""
    running: int
    """Requests in a batch that runs now."""
    queue_ms: Histogram
    """Time of each request in the queue, for those that ran; 0 for inline batches."""
    latency_ms: Histogram
    """Time of each request at the node, from its arrival in the queue until the end of its batch."""

    def _field(self, name: str, values: Mapping[str, Any]) -> Any:
        return values.get(name, Histogram() if name in TIMES else 0)

    def as_dict(self) -> dict[str, Any]:
        """Return the statistics as a dict, for JSON; a histogram is left out if it is empty."""
        counts = {name: getattr(self, name) for name in COUNTS}
        return {**counts, **{name: times.as_dict() for name in TIMES if (times := getattr(self, name))}}

    def __repr__(self) -> str:
        shown = [*COUNTS, *(name for name in TIMES if getattr(self, name))]
        return f"LaneStats({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


TIMES = ("queue_ms", "latency_ms")
COUNTS = tuple(name for name in LaneStats.__annotations__ if name not in TIMES)


def all_lanes(totals: Mapping[str, Any], high: Mapping[str, Mapping[str, Any]]) -> dict[str, LaneStats]:
    """Return the statistics of the three classes; `high`: those of the urgent and the high one, the rest is normal."""

    def lane(values: Mapping[str, Any]) -> dict[str, Any]:
        counts = {name: values.get(name, 0) for name in COUNTS}
        return {**counts, **{name: Histogram(*values.get(name, ())) for name in TIMES}}

    node, urgent, second = (lane(values) for values in (totals, high.get("urgent", {}), high.get("high", {})))
    normal = {name: max(0, node[name] - urgent[name] - second[name]) for name in COUNTS}
    normal |= {name: node[name] - urgent[name] - second[name] for name in TIMES}
    return {"urgent": LaneStats(urgent), "high": LaneStats(second), "normal": LaneStats(normal)}


class NodePolicy(Snapshot):
    """What the batching policy of a node has decided; a snapshot that does not change.

    >>> with hami.pipe("Identity") as pipe:
    ...     pipe.stats()["default"].policy.return_waits is None
    True
    """

    target_batch_size: int | None
    """Number of items that the next batch should have; None until batches of two sizes were measured."""
    return_waits: bool | None
    """Whether batches wait for returning callers; None for a node that does not learn it."""
    return_wait_gain: float | None
    """The part of the latency that return waits save, by trials; negative if they cost. None before a trial."""
    instances_in_use: int | None
    """Number of instances that run at a time, of a node that learns it (`instance_num = "auto"`); else None."""
    trial: str | None
    """The alternative that runs now: `more_instances`, `fewer_instances`, or `return_waits`, the opposite of now."""
    capped: bool | None
    """Whether high traffic limits batches with normal requests to `max_wait`; None for a node that had none."""
    padding: float | None
    """Part of the batches that is padding, if each item is padded to the largest; None without `request_cost`."""
    batch_cost: float | None
    """Mean cost of a batch, such as its number of tokens; None without `request_cost`."""
    cost_per_second: float | None
    """Cost of what ran in a second inside `forward`; None without `request_cost`."""

    def __repr__(self) -> str:
        return f"NodePolicy({', '.join(f'{name}={rounded(value)}' for name, value in self.as_dict().items())})"


class NodeStats(Snapshot):
    """Statistics of one node since its pipe was built; a snapshot that does not change.

    >>> with hami.pipe("Identity") as pipe:
    ...     request = pipe({"data": 1})
    ...     node = pipe.stats()["default"]
    >>> node.submitted, node.completed, node.failed
    (1, 1, 0)

    Statistics that end in `_ms` are milliseconds, `uptime_s` is seconds, all others are counts.
    """

    submitted: int
    """Requests that arrived. Each is waiting or running, or has ended in exactly one of the five outcomes below."""
    completed: int
    """Requests that ended without an error."""
    failed: int
    """Requests that ended with an error that is not counted below."""
    rejected: int
    """Requests that were rejected before they ran: the queue was full, or the pipe was closed."""
    dropped: int
    """Of the rejected requests: those that left a full queue for a newer one (`on_full = "drop_oldest"`)."""
    expired: int
    """Requests whose timeout or deadline passed."""
    cancelled: int
    """Requests that were cancelled by their caller."""
    waiting: int
    """Requests in the queue now."""
    running: int
    """Requests in a batch that runs now."""
    lanes: dict[str, LaneStats]
    """The same counts, and the times of the requests, for the urgent, the high and the normal requests."""
    queued_bytes: int
    """Bytes of the values of the waiting requests; 0 for a node without `memory_limit`."""
    retried: int
    """Requests that ran once more, alone, after their batch failed."""
    batches: int
    """Batches that ran."""
    batch_items: int
    """Items in these batches; a request has `request_size` items, by default 1."""
    inline_batches: int
    """Batches that ran on the thread of a caller."""
    model_calls: int
    """Calls of the backend's `forward`, retries included."""
    compute_ms: float
    """Time inside `forward`, summed over all instances."""
    closed_full: int
    """Batches that had `max` items, or started because the queue had reached `max_queue_size`."""
    closed_target_size: int
    """Batches below `max` that left requests in the queue: the next one exceeds the target size, or may not join."""
    closed_timeout: int
    """Batches that started because a wait of the instance ended, and that took all requests in the queue."""
    closed_queue_empty: int
    """Batches that took all requests in the queue, without a wait or with a wait that brought the expected requests."""
    target_batch_size: int | None
    """Number of items that the next batch should have; None until batches of two sizes were measured."""
    batch_overhead_ms: float | None
    """Learned time of a batch that does not depend on its size; None until batches of two sizes were measured."""
    per_item_ms: float | None
    """Learned time of each item; None until batches of two sizes were measured."""
    instances_in_use: int | None
    """Number of instances that run at a time, of a node that learns it (`instance_num = "auto"`); else None."""
    policy: NodePolicy
    """What the batching policy of the node has decided."""
    uptime_s: float
    """Time since the pipe was built."""
    queue_ms: Histogram
    """Time of each request in the queue, for those that ran; 0 for inline batches."""
    batch_ms: Histogram
    """Time of each batch from its start until its end, retries included."""
    latency_ms: Histogram
    """Time of each request at the node, from its arrival in the queue until the end of its batch."""
    batch_sizes: Histogram
    """Items of each batch."""
    backend_ms: dict[str, float]
    """Time inside each backend of the node, summed over all instances; containers of the core have none."""
    counters: dict[str, int]
    """Counts that the backends of the node keep, by their names."""

    def _field(self, name: str, values: Mapping[str, Any]) -> Any:
        if name in _HISTOGRAMS:
            return Histogram(*values.get(name, ()))
        if name == "lanes":
            return all_lanes(values, values.get(name, {}))
        if name == "policy":
            return NodePolicy(values.get(name, {}))
        return values.get(name, {} if name in _DICTS else None if name in _LEARNED else 0)

    def as_dict(self) -> dict[str, Any]:
        """Return the statistics as a dict, for JSON. Values that are None, and what is empty, are left out.

        A histogram becomes a dict of its count, mean and percentiles. `lanes` is left out if all requests were normal.
        """
        values = {name: getattr(self, name) for name in NodeStats.__annotations__ if name not in ("lanes", "policy")}
        values["policy"] = self.policy.as_dict()
        if any(self.lanes[name].submitted for name in ("urgent", "high")):
            values["lanes"] = {name: lane.as_dict() for name, lane in self.lanes.items()}
        shown = {
            name: value.as_dict() if isinstance(value, Histogram) and value else value for name, value in values.items()
        }
        return {
            name: value
            for name, value in shown.items()
            if value is not None and value != {} and not isinstance(value, Histogram)
        }

    def __repr__(self) -> str:
        """Return one line for each question: what became of the requests, how large batches are, why they started."""
        values = self.as_dict()
        lines = []
        for title, names in _LINES.items():
            if facts := [fact for name in names if name in values for fact in _facts(name, values[name])]:
                lines.append(f"    {', '.join(facts)},  # {title}\n")
        for lane, counts in values.get("lanes", {}).items():
            if not counts["submitted"]:
                continue
            lines.append(f"    {lane}: {', '.join(f'{name} {counts[name]}' for name in COUNTS if counts[name])},\n")
            times = [f"{name} p99 {rounded(counts[name]['p99'])}" for name in TIMES if name in counts]
            lines += [f"    {lane}: {', '.join(times)},\n"] if times else []
        return f"NodeStats(\n{''.join(lines)})"


def _facts(name: str, value: Any) -> list[str]:
    if name in _HISTOGRAMS:
        return [f"{name}: {', '.join(f'{part} {rounded(value[part])}' for part in ('p50', 'p90', 'p99'))}"]
    if name == "policy":
        return [f"policy.{part}={rounded(value[part])}" for part in value if part not in _LEARNED]
    if name == "backend_ms":
        return [f"{backend}={rounded(value[backend])}" for backend in value]
    return [f"{name}={rounded(value)}"]


def rounded(value: Any) -> str:
    """Return a statistic for people: milliseconds and seconds have at most three decimals."""
    return str(round(value, 3) if isinstance(value, float) else value)


_LEARNED = frozenset({"target_batch_size", "batch_overhead_ms", "per_item_ms", "instances_in_use"})
_HISTOGRAMS = ("queue_ms", "batch_ms", "latency_ms", "batch_sizes")
_DICTS = ("backend_ms", "counters")
_LINES = {
    "requests": ("submitted", "completed", "failed", "rejected", "dropped", "expired", "cancelled"),
    "requests now": ("waiting", "running", "queued_bytes"),
    "batches": ("batches", "batch_items", "inline_batches", "retried", "model_calls"),
    "why batches started": ("closed_full", "closed_target_size", "closed_timeout", "closed_queue_empty"),
    "learned": ("target_batch_size", "batch_overhead_ms", "per_item_ms", "instances_in_use"),
    "decided": ("policy",),
    "time": ("compute_ms", "uptime_s"),
    "time in the queue": ("queue_ms",),
    "time of a batch": ("batch_ms",),
    "time at the node": ("latency_ms",),
    "items of a batch": ("batch_sizes",),
    "time of each backend, in ms": ("backend_ms",),
    "of the backends": ("counters",),
}

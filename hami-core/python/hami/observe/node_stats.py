"""The statistics of one node, as `Pipe.stats` returns them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class NodeStats:
    """Statistics of one node since its pipe was built; a snapshot that does not change.

    >>> with hami.pipe("Identity") as pipe:
    ...     request = pipe({"data": 1})
    ...     node = pipe.stats()["default"]
    >>> node.submitted, node.completed, node.failed
    (1, 1, 0)

    Statistics that end in `_ms` are milliseconds, `uptime_s` is seconds, all others are counts.
    """

    __slots__ = (
        "batch_items",
        "batch_overhead_ms",
        "batches",
        "cancelled",
        "closed_full",
        "closed_queue_empty",
        "closed_target_size",
        "closed_timeout",
        "completed",
        "compute_ms",
        "counters",
        "expired",
        "failed",
        "inline_batches",
        "model_calls",
        "per_item_ms",
        "rejected",
        "retried",
        "running",
        "submitted",
        "target_batch_size",
        "uptime_s",
        "waiting",
    )

    submitted: int
    """Requests that arrived. Each is waiting or running, or has ended in exactly one of the five outcomes below."""
    completed: int
    """Requests that ended without an error."""
    failed: int
    """Requests that ended with an error that is not counted below."""
    rejected: int
    """Requests that were rejected before they ran: the queue was full, or the pipe was closed."""
    expired: int
    """Requests whose timeout or deadline passed."""
    cancelled: int
    """Requests that were cancelled by their caller."""
    waiting: int
    """Requests in the queue now."""
    running: int
    """Requests in a batch that runs now."""
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
    uptime_s: float
    """Time since the pipe was built."""
    counters: dict[str, int]
    """Counts that the backends of the node keep, by their names."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        for name in self.__slots__:
            default: Any = {} if name == "counters" else None if name in _LEARNED else 0
            object.__setattr__(self, name, values.get(name, default))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"NodeStats is a snapshot; {name} cannot be set")

    def as_dict(self) -> dict[str, Any]:
        """Return the statistics as a dict, for JSON. Values that are None and empty `counters` are left out."""
        return {name: value for name in _ORDER if (value := getattr(self, name)) is not None and value != {}}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeStats) and self.as_dict() == other.as_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Return one line for each question: what became of the requests, how large batches are, why they started."""
        values = self.as_dict()
        lines = []
        for title, names in _LINES.items():
            if facts := [f"{name}={rounded(values[name])}" for name in names if name in values]:
                lines.append(f"    {', '.join(facts)},  # {title}\n")
        return f"NodeStats(\n{''.join(lines)})"


def rounded(value: Any) -> str:
    """Return a statistic for people: milliseconds and seconds have at most three decimals."""
    return str(round(value, 3) if isinstance(value, float) else value)


_LEARNED = frozenset({"target_batch_size", "batch_overhead_ms", "per_item_ms"})
_LINES = {
    "requests": ("submitted", "completed", "failed", "rejected", "expired", "cancelled"),
    "requests now": ("waiting", "running"),
    "batches": ("batches", "batch_items", "inline_batches", "retried", "model_calls"),
    "why batches started": ("closed_full", "closed_target_size", "closed_timeout", "closed_queue_empty"),
    "learned": ("target_batch_size", "batch_overhead_ms", "per_item_ms"),
    "time": ("compute_ms", "uptime_s"),
    "of the backends": ("counters",),
}
_ORDER = tuple(name for name in NodeStats.__annotations__ if not name.startswith("_"))

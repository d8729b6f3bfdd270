"""The statistics of one node, as `Pipe.stats` returns them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class NodeStats:
    """Statistics of one node since its pipe was built; a snapshot that does not change.

        stats = pipe.stats()["default"]
        print(stats.completed, stats.batch_items / max(stats.batches, 1))

    Times are milliseconds, `uptime_s` is seconds, everything else is a count. `counters` holds the counts that the
    node's own backends keep. The learned values are None until batches of two sizes were measured.
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
    """Requests that reached the node. Each ends in exactly one of the five outcomes below, or waits or runs now."""
    completed: int
    """Requests that the node ran without an error."""
    failed: int
    """Requests that ended with an error of the backend, or because the request itself is wrong."""
    rejected: int
    """Requests that were refused before they ran: the queue was full, or the pipe was closed."""
    expired: int
    """Requests whose deadline passed."""
    cancelled: int
    """Requests that their caller gave up."""
    waiting: int
    """Requests in the queue now."""
    running: int
    """Requests inside a batch now."""
    retried: int
    """Requests that ran again alone after their batch failed."""
    batches: int
    """Batches that ran."""
    batch_items: int
    """Items in those batches; a request has one item unless its `request_size` says more."""
    inline_batches: int
    """Batches that ran on a caller's own thread."""
    model_calls: int
    """Calls of the backend's `forward`, retries included."""
    compute_ms: float
    """Time inside `forward`, summed over instances."""
    closed_full: int
    """Batches that started because they had `max` items."""
    closed_target_size: int
    """Batches that started because they had the learned target size."""
    closed_timeout: int
    """Batches that started because the queue delay was over."""
    closed_queue_empty: int
    """Batches that started because nothing else was queued."""
    target_batch_size: int | None
    """Learned: how many items the next batch should have."""
    batch_overhead_ms: float | None
    """Learned: the fixed time of a batch."""
    per_item_ms: float | None
    """Learned: the additional time of each item."""
    uptime_s: float
    """Time since the pipe was built."""
    counters: dict[str, int]
    """Counts that the node's backends keep under names of their own."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        for name in self.__slots__:
            default: Any = {} if name == "counters" else None if name in _LEARNED else 0
            object.__setattr__(self, name, values.get(name, default))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"NodeStats is a snapshot; {name!r} cannot be set")

    def as_dict(self) -> dict[str, Any]:
        """Return the statistics as a plain dict, in the order of the reference page; unknown values are left out."""
        return {name: value for name in _ORDER if (value := getattr(self, name)) is not None and value != {}}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeStats) and self.as_dict() == other.as_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"NodeStats({', '.join(f'{name}={value!r}' for name, value in self.as_dict().items())})"


_LEARNED = frozenset({"target_batch_size", "batch_overhead_ms", "per_item_ms"})
_ORDER = tuple(name for name in NodeStats.__annotations__ if not name.startswith("_"))

"""The statistics of one class of service at a node."""

from __future__ import annotations

from hami.observe.histogram import Histogram
from hami.observe.snapshot import Snapshot

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

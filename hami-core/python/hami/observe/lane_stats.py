"""The statistics of one class of service at a node."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class LaneStats:
    """What became of the requests of one class of service at a node: urgent, high or normal.

    >>> with hami.pipe("Identity") as pipe:
    ...     request = pipe({"data": 1}, priority=255)
    ...     lanes = pipe.stats()["default"].lanes
    >>> lanes["urgent"].completed, lanes["normal"].completed
    (1, 0)
    """

    __slots__ = ("cancelled", "completed", "expired", "failed", "rejected", "running", "submitted", "waiting")

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

    def __init__(self, values: Mapping[str, int]) -> None:
        for name in self.__slots__:
            object.__setattr__(self, name, values.get(name, 0))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"LaneStats is a snapshot; {name} cannot be set")

    def as_dict(self) -> dict[str, int]:
        """Return the statistics as a dict, for JSON."""
        return {name: getattr(self, name) for name in _ORDER}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LaneStats) and self.as_dict() == other.as_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"LaneStats({', '.join(f'{name}={value}' for name, value in self.as_dict().items())})"


_ORDER = tuple(name for name in LaneStats.__annotations__ if not name.startswith("_"))


def all_lanes(totals: Mapping[str, int], high: Mapping[str, Mapping[str, int]]) -> dict[str, LaneStats]:
    """Return the statistics of the three classes; `high`: those of the urgent and the high one, the rest is normal."""
    normal = {name: max(0, totals.get(name, 0) - sum(lane.get(name, 0) for lane in high.values())) for name in _ORDER}
    lanes = {name: LaneStats(high.get(name, {})) for name in ("urgent", "high")}
    return {**lanes, "normal": LaneStats(normal)}

"""The histogram of statistics, how often values of each size occurred, and the base of values that do not change."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

Bucket = tuple[float, float, int]  # smallest and largest value, count


class Snapshot:
    """A value whose fields are the annotations of its class, and do not change. Equal ones have equal `as_dict`."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, values: Mapping[str, Any]) -> None:
        for name in type(self).__annotations__:
            vars(self)[name] = self._field(name, values)

    def _field(self, name: str, values: Mapping[str, Any]) -> Any:
        """Return the value of a field, or its default."""
        return values.get(name)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dict, for JSON. Values that are None are left out."""
        return {name: value for name in type(self).__annotations__ if (value := getattr(self, name)) is not None}

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is a snapshot; {name} cannot be set")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.as_dict() == other.as_dict()


class Histogram(Snapshot):
    """How often values of each size occurred: a snapshot that does not change.

    >>> with hami.pipe("Identity") as pipe:
    ...     requests = pipe([{"data": number} for number in range(4)])
    ...     latency = pipe.stats()["default"].latency_ms
    >>> latency.count
    4
    >>> latency.p50 <= latency.p99 <= latency.max
    True

    Buckets are logarithmic: a quantile differs from the exact one by at most about 3 %. `a + b` merges two histograms
    of nodes, pipes or processes, and `after - before` is what was recorded between two snapshots.
    """

    sum: float
    """The exact sum."""
    buckets: tuple[Bucket, ...]
    """The buckets that are not empty, as tuples of smallest value, largest value and count, in ascending order."""

    def __init__(self, sum: float = 0.0, buckets: Iterable[Bucket] = ()) -> None:
        super().__init__({"sum": sum, "buckets": tuple(buckets)})

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(count for _, _, count in self.buckets)

    @property
    def mean(self) -> float:
        """The exact mean; NaN if there are no values."""
        return self.sum / self.count if self.buckets else float("nan")

    def quantile(self, part: float) -> float:
        """Return the value that this part of all values does not exceed; NaN if there are none.

        >>> hami.observe.Histogram(7.0, [(1.0, 2.0, 3), (4.0, 4.0, 1)]).quantile(0.5)
        1.5

        Args:
            part: From 0 to 1; 0.99 is the 99th percentile.

        Raises:
            ValueError: `part` is not from 0 to 1.
        """
        if not 0 <= part <= 1:
            raise ValueError(f"a quantile is from 0 to 1, got {part!r}; for the 99th percentile use 0.99")
        rank = part * self.count
        passed = 0
        for lower, upper, count in self.buckets:
            passed += count
            if passed >= rank:
                return (lower + upper) / 2
        return float("nan")

    @property
    def p50(self) -> float:
        """The median."""
        return self.quantile(0.5)

    @property
    def p90(self) -> float:
        """The 90th percentile."""
        return self.quantile(0.9)

    @property
    def p99(self) -> float:
        """The 99th percentile."""
        return self.quantile(0.99)

    @property
    def p999(self) -> float:
        """The 99.9th percentile."""
        return self.quantile(0.999)

    @property
    def max(self) -> float:
        """The largest value."""
        return self.quantile(1.0)

    def __add__(self, other: Histogram) -> Histogram:
        return self._combined(other, 1)

    def __sub__(self, other: Histogram) -> Histogram:
        return self._combined(other, -1)

    def _combined(self, other: Histogram, sign: int) -> Histogram:
        if not isinstance(other, Histogram):
            return NotImplemented
        counts = {(lower, upper): count for lower, upper, count in self.buckets}
        for lower, upper, count in other.buckets:
            counts[lower, upper] = counts.get((lower, upper), 0) + sign * count
        kept = [(*bounds, count) for bounds, count in sorted(counts.items()) if count > 0]
        return Histogram(self.sum + sign * other.sum, kept)

    def __bool__(self) -> bool:
        return bool(self.buckets)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Histogram) and (self.sum, self.buckets) == (other.sum, other.buckets)

    def as_dict(self) -> dict[str, Any]:
        """Return count, mean and percentiles as a dict, for JSON; only the count if there are no values.

        >>> hami.observe.Histogram().as_dict()
        {'count': 0}
        """
        if not self.buckets:
            return {"count": 0}
        return {
            "count": self.count,
            "mean": self.mean,
            "p50": self.p50,
            "p90": self.p90,
            "p99": self.p99,
            "p99.9": self.p999,
            "max": self.max,
        }

    def __repr__(self) -> str:
        shown = (f"{name}={value:.4g}" for name, value in self.as_dict().items())
        return f"<Histogram {', '.join(shown)}>"

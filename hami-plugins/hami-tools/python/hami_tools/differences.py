"""How two results differ: by numbers, in units of a tolerance, and in other ways."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import hami

MAX_TEXT = 40  # characters of a result in a description

# Relative tolerances of floating-point types: several times the distance of neighbouring numbers for the short types,
# and what reordered sums of a network reach for float32. Numbers of Python often were float32 before.
_RELATIVE = {"bfloat16": 3e-2, "float16": 8e-3, "float32": 1e-4, "float64": 1e-9}
_OF_PYTHON = "float32"
_ABSOLUTE = 0.1  # of the relative one, for numbers around 0
_PLAIN = (list, tuple, int, float, complex, str, bytes)  # what `tolist` of an array returns


class Difference(NamedTuple):
    """How two results differ."""

    largest: float = 0.0
    """The largest absolute difference of numbers."""
    excess: float = 0.0
    """The largest difference, in units of what the tolerance allows: above 1, the results differ."""
    reason: str = ""
    """What differs in another way than by a number."""

    @property
    def differs(self) -> bool:
        """Return whether the results differ by more than the tolerance."""
        return bool(self.reason) or self.excess > 1


@dataclass(frozen=True)
class Tolerance:
    """What numbers may differ by, `atol + rtol * |value|`: by default by their type. Ints are exact."""

    rtol: float | None = None
    atol: float | None = None
    by_dtype: dict[str, float] = field(default_factory=lambda: dict(_RELATIVE))

    def of(self, dtype: str) -> tuple[float, float]:
        """Return rtol and atol for a type."""
        relative = self.by_dtype.get(dtype, 0.0)
        if not relative and "float" not in dtype:
            return 0.0, 0.0
        rtol = relative if self.rtol is None else self.rtol
        return rtol, rtol * _ABSOLUTE if self.atol is None else self.atol


EXACT = Tolerance(0.0, 0.0)


def compare(one: Any, other: Any, tolerance: Tolerance = EXACT) -> Difference:
    """Compare two results: exceptions by their class, arrays by shape and numbers, containers by their items."""
    if isinstance(one, BaseException) or isinstance(other, BaseException):
        shown = [type(value).__name__ if isinstance(value, BaseException) else "a result" for value in (one, other)]
        return Difference(reason="" if shown[0] == shown[1] else f"{shown[0]} and {shown[1]}")
    if _is_array(one) and _is_array(other):
        return _compare_arrays(one, other, tolerance)
    if _is_array(one) or _is_array(other):
        return _compare_with_array(one, other, tolerance)
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        is_float = isinstance(one, float) or isinstance(other, float)
        return _of_numbers(one, other, *(tolerance.of(_OF_PYTHON) if is_float else (0.0, 0.0)))
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        if len(one) != len(other):
            return Difference(reason=f"lengths {len(one)} and {len(other)}")
        return _worst(compare(*pair, tolerance) for pair in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return Difference(reason=f"keys {sorted(map(str, one))} and {sorted(map(str, other))}")
        return _worst(compare(one[key], other[key], tolerance) for key in one)
    try:
        same = bool(one == other)
    except Exception:  # of a class whose values have no order, or which compares item by item
        same = False
    return Difference(reason="" if same else f"{str(one)[:MAX_TEXT]!r} and {str(other)[:MAX_TEXT]!r}")


def _is_array(value: Any) -> bool:
    """Return whether a value says the type of its elements, unlike a memoryview and one of the module `array`."""
    return hasattr(value, "tolist") and hasattr(value, "dtype")


def _compare_with_array(one: Any, other: Any, tolerance: Tolerance) -> Difference:
    """Compare an array with a value that is not one: with a list or a number as lists are compared."""
    array, value = (one, other) if _is_array(one) else (other, one)
    if not isinstance(value, _PLAIN):
        return Difference(reason=f"{type(one).__name__} and {type(other).__name__}")
    rtol, atol = tolerance.of(str(array.dtype).rpartition(".")[2])
    first, second = (each.tolist() if each is array else each for each in (one, other))
    return compare(first, second, Tolerance(rtol, atol))


def _compare_arrays(one: Any, other: Any, tolerance: Tolerance) -> Difference:
    if tuple(one.shape) != tuple(other.shape):
        return Difference(reason=f"shapes {tuple(one.shape)} and {tuple(other.shape)}")
    shorter = min((str(array.dtype).rpartition(".")[2] for array in (one, other)), key=_digits)
    rtol, atol = tolerance.of(shorter)
    try:
        import numpy

        first, second = (hami.to_numpy(array) for array in (one, other))
        if not all(array.dtype.kind in "biuf" for array in (first, second)):
            raise hami.DataTypeError("not an array of numbers")
    except (ImportError, hami.DataTypeError):  # a type that numpy does not have, or text
        return compare(one.tolist(), other.tolist(), Tolerance(rtol, atol))
    with numpy.errstate(all="ignore"):
        same = first == second
        if same.all():
            return Difference()
        same |= (first != first) & (second != second)
        apart = numpy.abs(first.astype("float64") - second.astype("float64"))
        if first.dtype.kind != "f" and second.dtype.kind != "f":
            apart = numpy.maximum(apart, 1.0)  # of large ints, which float64 rounds
        apart = numpy.where(same, 0.0, apart)
        apart = numpy.where(numpy.isnan(apart), numpy.inf, apart)
        allowed = atol + rtol * numpy.abs(first.astype("float64"))
        excess = numpy.where(apart > 0, apart / allowed, 0.0)
    return Difference(float(apart.max()), float(numpy.nan_to_num(excess, nan=numpy.inf).max()))


def _digits(dtype: str) -> float:
    """Return a key by which types of fewer digits come first."""
    return -_RELATIVE.get(dtype, 0.0)


def _of_numbers(one: float, other: float, rtol: float, atol: float) -> Difference:
    if one == other or (one != one and other != other):
        return Difference()
    apart = float(abs(one - other))
    if math.isnan(apart):
        apart = math.inf
    allowed = atol + rtol * abs(one)
    return Difference(apart, apart / allowed if allowed and allowed < math.inf else math.inf)


def _worst(parts: Iterable[Difference]) -> Difference:
    worst = Difference()
    for part in parts:
        worst = Difference(
            max(worst.largest, part.largest), max(worst.excess, part.excess), worst.reason or part.reason
        )
    return worst

"""invariance_lines: by how much a row alone differs from the same row in batches of several sizes, as a table.

Engines sum the values of a batch in another order than those of a single row, so that the last bits may differ. The
table names the sizes for which the row is equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import hami
import numpy as np
from numpy.typing import NDArray

from hami_model_check.row_test import RowComparison, RowInput, Run, largest_difference

SIZES = (2, 3, 4, 8, 16, 32)  # rows that run together
SECONDS = 10.0  # after them, no further set of rows runs


class SizeDifference(NamedTuple):
    """What was seen with one number of rows."""

    rows: int
    is_equal: bool  # bit for bit, for each row that was tried
    largest: float  # the largest difference, relative to the largest value of the row
    output: str  # where it was seen


class _BySize(RowComparison):
    """Keeps the largest difference of each size, and never stops at one."""

    def __init__(self, run: Run, inputs: Sequence[RowInput], sizes: Sequence[int], seconds: float) -> None:
        super().__init__(run, list(inputs), None, 1, "", None, seconds, None)
        self._batches = tuple(sizes)
        self.found: dict[int, SizeDifference] = {}

    def _compare(self, name: str, size: int, alone: NDArray[Any], together: NDArray[Any]) -> None:
        found = self.found.setdefault(size, SizeDifference(size, True, 0.0, ""))
        if _are_same_bits(alone, together):
            return
        relative = largest_difference(alone, together, name, size).relative
        worst = (relative, name) if relative >= found.largest else (found.largest, found.output)
        self.found[size] = SizeDifference(size, False, *worst)


def _are_same_bits(one: NDArray[Any], other: NDArray[Any]) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(np.array_equal(one, other)) if one.dtype.hasobject else one.tobytes() == other.tobytes()


def compare_sizes(
    run: Run, inputs: Sequence[RowInput], *, sizes: Sequence[int] = SIZES, seconds: float = SECONDS
) -> list[SizeDifference]:
    """Run rows alone and in batches of each size, in two orders, and compare them bit for bit.

    A model with a fixed number of rows is compared in batches of this size, where the other rows are its copies.

    Args:
        run: as in compare_rows; it returns a dict of arrays by output.
        inputs: what the model takes.
        sizes: numbers of rows that run together.
        seconds: the test tries to end within this time, without the largest size if a row takes too long.

    Raises:
        hami.ConfigError: the model could not be run, or its outputs have no axis of rows.
    """
    comparison = _BySize(run, inputs, sizes, seconds)
    test = comparison.result()
    if test.verdict != "equal":
        raise hami.ConfigError(f"rows cannot be compared: {test.why}")
    return [comparison.found[rows] for rows in sorted(comparison.found)]


def invariance_lines(
    backend: str, params: Mapping[str, Any], signature: Mapping[str, Any] | None, *, sizes: Sequence[int] = SIZES
) -> list[str]:
    """Return the lines of `hami check --invariance` about a configured backend, whose pipe is built for it.

    Args:
        backend: a backend that takes data by input name, with the rows along axis 0.
        params: its parameters.
        signature: what hami_signature returns about it; None: it is unknown.
        sizes: numbers of rows that run together.
    """
    if signature is None:
        return ["the inputs are not known, so that no rows can be made for them"]
    inputs = [_input(port) for port in signature["inputs"]]
    outputs = [port["name"] for port in signature["outputs"]]
    given = {name: value for name, value in params.items() if value not in (None, "", []) and name != "inputs"}
    with hami.pipe({**given, "backend": backend}) as pipe:

        def run(arrays: Sequence[NDArray[Any]]) -> dict[str, NDArray[Any]]:
            data = {each.name: array for each, array in zip(inputs, arrays, strict=True)}
            result = pipe({"data": data})["result"]
            named = result if isinstance(result, Mapping) else {outputs[0]: result}
            return {name: _array(value) for name, value in named.items()}

        try:
            found = compare_sizes(run, inputs, sizes=sizes)
        except hami.ConfigError as error:
            return [str(error)]
    return _table(found)


def _input(port: Mapping[str, Any]) -> RowInput:
    dtype = np.dtype(object if port["dtype"] == "string" else port["dtype"])
    shape = tuple(size if size >= 0 else None for size in port["shape"])
    return RowInput(port["name"], dtype, shape, 0 if shape else None)


def _array(value: Any) -> NDArray[Any]:
    return value if isinstance(value, np.ndarray) else np.asarray(hami.to_numpy(value))


def _table(found: Sequence[SizeDifference]) -> list[str]:
    lines = ["rows in a batch  equal bit for bit  largest difference from the row alone"]
    for each in found:
        difference = f"{each.largest:.1e} of the largest value, in {each.output}" if not each.is_equal else "none"
        lines.append(f"{each.rows:>15}  {'yes' if each.is_equal else 'no':>17}  {difference}")
    return lines

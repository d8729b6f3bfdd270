"""compare_rows: measures whether the rows of a batch influence each other, by running rows alone and together.

It is the test for models about which prove_rows knows nothing: custom operators, exported programs, engine files. It
runs rows of different magnitude, sign and length, alone and together, in several orders, and compares.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Arrays = list[NDArray[Any]]
Run = Callable[[Arrays], "Sequence[Any] | Mapping[str, Any]"]

BATCHES = (2, 3, 8)  # rows that run together
SEEDS = (0, 1, 2)  # mixing that depends on the data can hide from one set of rows
MAGNITUDES = (1.0, 0.02, 30.0, 0.3, 100.0, 5.0, 0.001, 10.0)  # of the rows of a batch, one after the other
LENGTHS = ((32, 64, 96), (224, 256, 192), (16, 24, 8), (5, 3, 2), (1, 2, 3), (1024, 1600, 2048), (16000, 24000, 20000))
INTEGER_RANGES = ((0, 100), (0, 8), (0, 2), (1, 2))  # an index may only be valid within a small range
MOST_ELEMENTS = 1 << 20  # of a row; an input with three free axes must not take the memory
SHARED_INTEGERS = (1, 3)  # of inputs without rows: they may be sizes or repetitions, whose product takes memory
WORDS = ("", "a", "row", "neighbour", "Zürich", "0", "two words", "A" * 40)

SUMMED_TERMS = {2: 16, 4: 4096, 8: 4096}  # by bytes of the dtype: engines sum values of 16 bits in float32
EPS = {"bfloat16": 2.0**-7, "float16": 2.0**-10}  # of the types of 16 bits; TF32 has the eps of float16
LOOSEST = 0.1  # a tolerance above it would accept another answer


def tolerance(dtype: np.dtype[Any], nodes: int, computed_in: str = "") -> float:
    """Return the largest relative difference that rounding explains: eps · √(terms of a sum) · √(nodes), at most 0.1.

    A sum of n terms that is rounded in another order differs by about √n · eps, and the errors of nodes that follow
    each other add up in the same way. 4096 terms cover the common layers; values of 16 bits are summed in float32, and
    only their results are rounded. Integers, bools and strings must be equal.

    Args:
        dtype: of the values that are compared.
        nodes: number of nodes of the model.
        computed_in: "float16" or "bfloat16" if the engine computes in a coarser type than `dtype`; "float16" for TF32.
    """
    if not _is_float(dtype):
        return 0.0
    eps = EPS.get(dtype.name, {4: 2.0**-23, 8: 2.0**-52}.get(dtype.itemsize, 2.0**-3))
    rounding = eps * math.sqrt(SUMMED_TERMS.get(dtype.itemsize, 1))
    rounding = max(rounding, EPS.get(computed_in, 0.0) * math.sqrt(SUMMED_TERMS[2]))
    return min(LOOSEST, rounding * math.sqrt(max(1, nodes)))


@dataclass(frozen=True)
class RowInput:
    """One input of a model.

    Attributes:
        name: its name; inputs with the same name of an axis get the same length there.
        dtype: its dtype; object for strings.
        shape: its axes; None or a name: any length.
        axis: the axis of the rows; None: all rows share this input.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str | None, ...]
    axis: int | None


@dataclass(frozen=True)
class Difference:
    """The largest difference between a row alone and in a batch, relative to the largest value of that row."""

    relative: float
    output: str
    rows: int  # of the batch
    alone: str
    together: str

    def __str__(self) -> str:
        return f'output "{self.output}" of a row is {self.alone} alone and {self.together} in a batch of {self.rows}'


@dataclass(frozen=True)
class RowTest:
    """What compare_rows measured.

    Attributes:
        verdict: "equal", "differs", or "not run".
        output_axes: the axis of the rows of each output; None: all rows share this output.
        largest: the largest difference that was seen, also if it is within the tolerance.
        why: a sentence, if the verdict is not "equal".
    """

    verdict: Literal["equal", "differs", "not run"]
    output_axes: dict[str, int | None] = field(default_factory=dict)
    largest: Difference | None = None
    why: str = ""


class _Differs(Exception):
    pass


class _NotRun(Exception):
    pass


def compare_rows(
    run: Run,
    inputs: Sequence[RowInput],
    outputs: Sequence[str] | None,
    *,
    nodes: int,
    output_axes: dict[str, int | None] | None = None,
    seconds: float = 3.0,
    computed_in: str = "",
    most_rows: int | None = None,
) -> RowTest:
    """Run rows alone and together, and compare them.

        test = compare_rows(run, [RowInput("x", np.dtype("float32"), (None, 3), 0)], ["y"], nodes=40)
        test.verdict

    Args:
        run: runs the model on one array for each input, and returns one for each output, or a dict of them by name. It
            may raise.
        inputs: what the model takes, in this order.
        outputs: names of what the model returns, in this order; None: `run` returns a dict.
        nodes, computed_in: number of nodes of the model, and the type that it computes in, as in `tolerance`.
        output_axes: the axis of the rows of each output; None: it is found from the shapes.
        seconds: the test tries to end within this time, with smaller batches and fewer sets; at least one set runs.
        most_rows: the largest batch that the model takes; None: any.
    """
    names = None if outputs is None else list(outputs)
    return RowComparison(run, list(inputs), names, nodes, computed_in, output_axes, seconds, most_rows).result()


class RowComparison:
    """One call of compare_rows."""

    def __init__(
        self,
        run: Run,
        inputs: list[RowInput],
        outputs: list[str] | None,
        nodes: int,
        computed_in: str,
        output_axes: dict[str, int | None] | None,
        seconds: float,
        most_rows: int | None,
    ) -> None:
        self._run, self._inputs = run, inputs
        self._outputs = outputs or []  # a dict of the first run has the names otherwise
        self._nodes, self._computed_in, self._axes = nodes, computed_in, output_axes
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._batches = tuple(size for size in BATCHES if most_rows is None or size <= most_rows)
        self._largest: Difference | None = None
        sizes = {each.shape[each.axis] for each in inputs if each.axis is not None and each.shape}
        fixed = {size for size in sizes if isinstance(size, int)}
        self._fixed = fixed.pop() if len(fixed) == 1 else None

    def result(self) -> RowTest:
        try:
            self._all_sets()
        except _Differs as error:
            return RowTest("differs", dict(self._axes or {}), self._largest, str(error))
        except _NotRun as error:
            return RowTest("not run", dict(self._axes or {}), self._largest, str(error))
        return RowTest("equal", dict(self._axes or {}), self._largest)

    def _all_sets(self) -> None:
        if all(each.axis is None for each in self._inputs):
            raise _NotRun("no input has an axis of rows")
        if self._fixed == 1:
            raise _NotRun("the axis of the rows has the fixed length 1")
        if not self._batches:
            raise _NotRun("the model takes one row")
        self._values = self._working_values()
        for seed in SEEDS:
            start = time.monotonic()
            try:
                self._one_set(seed)
            except _NotRun:
                if seed == SEEDS[0]:
                    raise
                return  # the model does not take these lengths
            if 2 * time.monotonic() - start > self._end:
                return  # the next set would end too late

    def _working_values(self) -> _Values:
        """Return how values are made with which the model runs."""
        failure = ""
        for lengths in LENGTHS:
            for integers in INTEGER_RANGES if any(each.dtype.kind in "iu" for each in self._inputs) else ((0, 100),):
                values = _Values(self._inputs, lengths, integers)
                if values.elements_of_a_row > MOST_ELEMENTS:
                    break
                try:
                    row = values.rows(SEEDS[0], 1)
                    start = time.monotonic()
                    self._outputs_of(row)
                except _NotRun as error:
                    failure = failure or str(error)
                else:
                    self._choose_batches(time.monotonic() - start)
                    return values
                if time.monotonic() > self._end:
                    raise _NotRun(f"the model ran on none of the values that were tried in time: {failure}")
            if not any(map(_is_free, self._inputs)):
                break
        raise _NotRun(f"the model ran on none of the values that were tried: {failure}")

    def _choose_batches(self, one_row: float) -> None:
        """Leave out the largest batch if a set of rows would take too long: each row runs alone and in two orders."""
        if self._fixed is not None:
            self._batches = (self._fixed,)
        elif one_row * (max(self._batches) + 2 * sum(self._batches)) > self._seconds and len(self._batches) > 1:
            self._batches = self._batches[:-1]

    def _one_set(self, seed: int) -> None:
        most = max(self._batches)
        rows = self._values.rows(seed, most)
        alone = [self._outputs_of([row]) for row in rows]
        if self._axes is None:
            self._axes = self._found_axes(rows, alone)
        alone_rows = [[self._row(output, name, 0) for output, name in self._named(each)] for each in alone]
        generator = np.random.default_rng(seed)
        for size in self._batches:
            for order in (list(range(size)), [int(i) for i in generator.permutation(most)[:size]]):
                together = self._outputs_of([rows[i] for i in order])
                for at, index in enumerate(order):
                    for output, (whole, name) in enumerate(self._named(together)):
                        self._compare(name, size, alone_rows[index][output], self._row(whole, name, at))

    def _outputs_of(self, rows: list[Arrays]) -> Arrays:
        """Run rows together; with a fixed number of rows, one row fills the batch."""
        if self._fixed is not None and len(rows) < self._fixed:
            rows = rows * (self._fixed // len(rows) + 1)
            rows = rows[: self._fixed]
        arrays = [
            np.concatenate([row[i] for row in rows], axis=each.axis) if each.axis is not None else rows[0][i]
            for i, each in enumerate(self._inputs)
        ]
        try:
            results = self._run(arrays)
        except Exception as error:  # an engine may raise anything
            text = str(error).strip().splitlines()
            raise _NotRun(text[0] if text else type(error).__name__) from error
        if isinstance(results, Mapping):
            self._outputs = self._outputs or list(results)
            results = [results[name] for name in self._outputs]
        if not all(isinstance(result, (np.ndarray, np.generic)) for result in results):
            raise _NotRun("an output is not an array")
        return [np.asarray(result) for result in results]

    def _found_axes(self, rows: list[Arrays], alone: list[Arrays]) -> dict[str, int | None]:
        """Find the axis of each output whose length is the number of rows."""
        if self._fixed is not None:
            axes = {}
            for name, output in zip(self._outputs, alone[0], strict=True):
                fitting = [axis for axis, size in enumerate(output.shape) if size == self._fixed]
                axes[name] = fitting[0] if fitting else None
            return axes
        two, more = self._outputs_of(rows[:2]), self._outputs_of(rows[:3])
        axes = {}
        for name, *shapes in zip(
            self._outputs, *([output.shape for output in outputs] for outputs in (alone[0], two, more)), strict=True
        ):
            axes[name] = self._found_axis(name, shapes, (1, 2, len(rows[:3])))
        return axes

    def _found_axis(self, name: str, shapes: list[tuple[int, ...]], rows: tuple[int, ...]) -> int | None:
        one, two, more = shapes
        if len({len(shape) for shape in shapes}) == 1:
            changing = [axis for axis, size in enumerate(one) if (size, two[axis], more[axis]) == rows]
            others = [axis for axis, size in enumerate(one) if not size == two[axis] == more[axis]]
            if not others:
                return None
            if changing == others and len(changing) == 1:
                return changing[0]
        raise _Differs(
            f'output "{name}" has the shape {list(one)} for one row, {list(two)} for two and {list(more)} for '
            f"{'three' if rows[2] == 3 else 'two'}, so that its parts cannot be assigned to the rows"
        )

    def _named(self, outputs: Arrays) -> Iterator[tuple[NDArray[Any], str]]:
        return zip(outputs, self._outputs, strict=True)

    def _row(self, output: NDArray[Any], name: str, index: int) -> NDArray[Any]:
        axis = (self._axes or {}).get(name)
        if axis is None:
            return output
        if axis >= output.ndim or index >= output.shape[axis]:
            raise _Differs(f'output "{name}" has the shape {list(output.shape)}, which has no row {index}')
        return np.take(output, [index], axis=axis)

    def _compare(self, name: str, size: int, alone: NDArray[Any], together: NDArray[Any]) -> None:
        difference = largest_difference(alone, together, name, size)
        if self._largest is None or difference.relative > self._largest.relative:
            self._largest = difference
        if difference.relative > tolerance(alone.dtype, self._nodes, self._computed_in):
            raise _Differs(f"{difference}, which is more than rounding explains")


def largest_difference(alone: NDArray[Any], together: NDArray[Any], output: str, rows: int) -> Difference:
    """Compare one row alone and in a batch; `relative` is infinite if shapes, types, NaN or infinities differ."""
    if alone.shape != together.shape or alone.dtype != together.dtype:
        shown = [f"{each.dtype} {list(each.shape)}" for each in (alone, together)]
        return Difference(math.inf, output, rows, *shown)
    if not alone.size:
        return Difference(0.0, output, rows, "empty", "empty")
    if not _is_float(alone.dtype):
        unequal = np.flatnonzero(alone.reshape(-1) != together.reshape(-1))
        at = int(unequal[0]) if unequal.size else 0
        relative = math.inf if unequal.size else 0.0
    else:
        at, relative = _largest_float(alone.reshape(-1), together.reshape(-1))
    shown = [_shown(each.reshape(-1)[at]) for each in (alone, together)]
    return Difference(relative, output, rows, *shown)


def _largest_float(alone: NDArray[Any], together: NDArray[Any]) -> tuple[int, float]:
    if alone.dtype.itemsize < 4 or alone.dtype.kind not in "fc":
        alone, together = alone.astype(np.float32), together.astype(np.float32)
    finite = np.isfinite(alone)
    with np.errstate(all="ignore"):
        same = (alone == together) | (np.isnan(alone) & np.isnan(together))
        wrong = np.flatnonzero(~same & ~(finite & np.isfinite(together)))
        if wrong.size:
            return int(wrong[0]), math.inf
        distance = np.where(same, 0, np.abs(alone - together))
        at = int(np.argmax(distance))
        scale = max(float(np.max(np.abs(each[finite]), initial=0.0)) for each in (alone, together))
        return at, float(distance[at]) / scale if scale else 0.0


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "fc" or "float" in dtype.name


def _shown(value: Any) -> str:
    return f"{float(value):.6g}" if isinstance(value, np.floating) else str(value)


def _is_free(each: RowInput) -> bool:
    """Return whether an axis beside that of the rows has no fixed length."""
    return any(not isinstance(size, int) for axis, size in enumerate(each.shape) if axis != each.axis)


class _Values:
    """Makes rows for the inputs of a model."""

    def __init__(self, inputs: list[RowInput], lengths: tuple[int, ...], integers: tuple[int, int]) -> None:
        self._inputs, self._lengths, self._integers = inputs, lengths, integers

    @property
    def elements_of_a_row(self) -> int:
        """The largest number of elements that an input with free axes has in one row."""
        longest = max(self._lengths)
        return max(
            (math.prod(self._shape(each, longest)) for each in self._inputs if _is_free(each)),
            default=0,
        )

    def _shape(self, each: RowInput, length: int) -> tuple[int, ...]:
        return tuple(
            1 if axis == each.axis else size if isinstance(size, int) else length
            for axis, size in enumerate(each.shape)
        )

    def rows(self, seed: int, count: int) -> list[Arrays]:
        """Return rows that differ in magnitude and sign, each as one array for each input; lengths depend on `seed`."""
        generator = np.random.default_rng(seed)
        shared = [None if each.axis is not None else self._array(each, seed, 0, generator) for each in self._inputs]
        return [
            [
                self._array(each, seed, row, generator) if array is None else array
                for each, array in zip(self._inputs, shared, strict=True)
            ]
            for row in range(count)
        ]

    def _array(self, each: RowInput, seed: int, row: int, generator: np.random.Generator) -> NDArray[Any]:
        shape = self._shape(each, self._lengths[seed % len(self._lengths)])
        dtype = each.dtype
        if dtype.hasobject:
            words = generator.integers(0, len(WORDS), shape)
            return np.array([WORDS[i] for i in np.ravel(words)], object).reshape(shape)
        if dtype.kind == "b":
            return np.asarray(generator.integers(0, 2, shape), bool)
        if dtype.kind in "iu":
            low, high = self._integers if each.axis is not None else SHARED_INTEGERS
            if dtype.itemsize == 1:
                low, high = np.iinfo(dtype).min, np.iinfo(dtype).max + 1
            return np.asarray(generator.integers(low, high, shape), dtype)
        magnitude = MAGNITUDES[(row + seed) % len(MAGNITUDES)]
        shift = (0.0, 1.0, -1.0)[(row + seed) % 3]  # signs: mixed, mostly positive, mostly negative
        return np.asarray((generator.standard_normal(shape) + shift) * magnitude, dtype)

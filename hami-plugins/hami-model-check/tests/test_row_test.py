"""compare_rows: finds rows that influence each other, and accepts rows that do not."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from hami_model_check.row_test import RowInput, compare_rows, tolerance

FLOAT = np.dtype(np.float32)
X = RowInput("x", FLOAT, (None, 4), 0)


def compare(function, inputs=(X,), outputs=("y",), nodes=1, **options):
    return compare_rows(lambda arrays: [function(*arrays)], list(inputs), list(outputs), nodes=nodes, **options)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 1,
        lambda x: x / np.abs(x).sum(axis=1, keepdims=True),
        lambda x: np.float32(x @ np.ones((4, 3))),
        lambda x: x.argmax(axis=1),
        lambda x: np.sqrt(x),  # NaN for negative values, in the same places
        lambda x: x * np.float32(1e38),  # infinities
    ],
)
def test_independent_rows_are_equal(function):
    with np.errstate(all="ignore"):
        test = compare(function)
    assert (test.verdict, test.output_axes, test.why) == ("equal", {"y": 0}, "")
    assert test.largest.relative <= tolerance(FLOAT, 1)


def quantised(x):
    scale = (x.max() - x.min()) / 255
    return np.round(x / scale) * scale


@pytest.mark.parametrize(
    "function",
    [
        quantised,
        lambda x: x - x.mean(axis=0),
        lambda x: x / np.abs(x).sum(),
        lambda x: np.cumsum(x, axis=0),
        lambda x: np.where(x.max() > 50, x + 1, x),  # depends on one value of a neighbour
        lambda x: np.sort(x, axis=0),
        lambda x: x + np.arange(len(x), dtype=np.float32)[:, None],  # depends on the place in the batch
        lambda x: np.full_like(x, len(x)),  # depends on the number of rows
        lambda x: np.where(np.isnan(x.sum()) | (len(x) == 8), np.float32("nan"), x),
    ],
)
def test_rows_that_influence_each_other_differ(function):
    test = compare(lambda x: np.float32(function(x)))
    assert test.verdict == "differs"
    assert 'output "y" of a row is ' in test.why


def test_an_output_without_rows_must_not_depend_on_them():
    assert compare(lambda x: x.sum(axis=0)).verdict == "differs"
    shared = compare(lambda x: np.float32([1, 2]))
    assert (shared.verdict, shared.output_axes) == ("equal", {"y": None})


def test_an_output_with_rows_on_two_axes_differs():
    test = compare(lambda x: x @ x.T)
    assert test.verdict == "differs"
    assert 'output "y" has the shape [1, 1] for one row, [2, 2] for two and [3, 3] for three' in test.why


def test_the_axis_of_the_rows_need_not_be_the_first():
    time_first = RowInput("x", FLOAT, ("time", "batch", 2), 1)
    test = compare(lambda x: np.cumsum(x, axis=0), [time_first], nodes=10)
    assert (test.verdict, test.output_axes) == ("equal", {"y": 1})
    assert compare(lambda x: np.cumsum(x, axis=1), [time_first]).verdict == "differs"


def test_an_input_that_rows_share_is_the_same_for_all():
    scale = RowInput("scale", FLOAT, (), None)
    assert compare(lambda x, s: x * s, [X, scale]).verdict == "equal"


def test_a_fixed_number_of_rows_is_filled_with_copies():
    fixed = RowInput("x", FLOAT, (4, 2), 0)
    shapes = set()

    def seen(x):
        shapes.add(x.shape)
        return x * 2

    assert compare(seen, [fixed]).verdict == "equal"
    assert shapes == {(4, 2)}
    assert compare(lambda x: x - x.mean(axis=0), [fixed]).verdict == "differs"


def test_indices_are_within_the_range_that_the_model_takes():
    table = np.arange(6, dtype=np.float32)

    def look_up(index):
        if index.max() >= 6:
            raise IndexError("out of range")
        return table[index]

    test = compare(look_up, [RowInput("index", np.dtype(np.int64), (None, 5), 0)])
    assert test.verdict == "equal"


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int32, np.float16, np.float64, object, ml_dtypes.bfloat16])
def test_rows_of_every_dtype_are_made(dtype):
    test = compare(lambda x: x.copy(), [RowInput("x", np.dtype(dtype), (None, 3), 0)])
    assert (test.verdict, test.largest.relative) == ("equal", 0)


def test_lengths_differ_between_the_sets_of_rows_and_equal_names_have_equal_lengths():
    widths = set()

    def seen(a, b):
        widths.add(a.shape[1])
        return a + b

    inputs = [RowInput(name, FLOAT, ("n", "width"), 0) for name in "ab"]
    assert compare(seen, inputs).verdict == "equal"
    assert len(widths) == 3


def test_a_model_that_runs_on_no_values_is_not_tested():
    def fail(x):
        raise ValueError("no\nmore")

    test = compare(fail)
    assert (test.verdict, test.why) == ("not run", "the model ran on none of the values that were tried: no")


@pytest.mark.parametrize(
    ("dtype", "nodes", "most"), [("float32", 1, 1e-5), ("float32", 500, 2e-4), ("float64", 500, 1e-12)]
)
def test_the_tolerance_follows_dtype_and_depth(dtype, nodes, most):
    assert 0 < tolerance(np.dtype(dtype), nodes) < most
    assert tolerance(np.dtype(dtype), nodes) >= tolerance(np.dtype(dtype), 1)
    assert tolerance(np.dtype(np.int8), nodes) == 0
    assert tolerance(np.dtype(ml_dtypes.bfloat16), 10**6) == 0.1


def test_rows_are_small_although_several_axes_are_free():
    largest = []

    def fail(x):
        largest.append(x.size)
        raise ValueError("not this length")

    assert compare(fail, [RowInput("x", FLOAT, ("n", "a", "b", "c"), 0)]).verdict == "not run"
    assert max(largest) <= 1 << 20
    assert len(largest) > 2


def test_integers_that_rows_share_are_small_because_they_may_be_repetitions():
    repetitions = RowInput("repetitions", np.dtype(np.int64), (3,), None)
    seen = []

    def tile(x, each):
        seen.append(int(each.max()))
        return np.tile(x, (1, int(each[0])))

    assert compare(tile, [X, repetitions]).verdict == "equal"
    assert max(seen) <= 2


def test_a_dict_names_the_outputs():
    test = compare_rows(lambda arrays: {"sum": arrays[0].sum(axis=1), "x": arrays[0]}, [X], None, nodes=1)
    assert (test.verdict, test.output_axes) == ("equal", {"sum": 0, "x": 0})
    test = compare_rows(lambda arrays: {"sum": arrays[0].sum(axis=1), "x": arrays[0][::-1]}, [X], None, nodes=1)
    assert test.why.startswith('output "x" of a row is ')


def test_a_coarser_type_of_the_engine_widens_the_tolerance():
    assert tolerance(FLOAT, 4, "float16") == tolerance(np.dtype(np.float16), 4)
    assert tolerance(FLOAT, 1, "bfloat16") == tolerance(np.dtype(ml_dtypes.bfloat16), 1)
    assert tolerance(FLOAT, 4, "float32") == tolerance(FLOAT, 4)
    assert tolerance(np.dtype(np.int64), 4, "bfloat16") == 0

    def rounded(x):
        return np.float32(x * (1 + 2.0**-11 * (len(x) > 1)))

    assert compare(rounded).verdict == "differs"
    assert compare(rounded, computed_in="float16").verdict == "equal"


@pytest.mark.parametrize(("most", "sizes"), [(2, {1, 2}), (7, {1, 2, 3}), (None, {1, 2, 3, 8})])
def test_no_batch_is_larger_than_the_model_takes(most, sizes):
    seen = set()

    def spied(x):
        seen.add(len(x))
        return x

    assert compare(spied, most_rows=most).verdict == "equal"
    assert seen == sizes


def test_a_model_that_takes_one_row_is_not_tested():
    assert compare(lambda x: x, most_rows=1).why == "the model takes one row"

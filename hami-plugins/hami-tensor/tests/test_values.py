"""Values become what a model declares: exact integers and finite floats; a loss above rounding names both types."""

from __future__ import annotations

from typing import Any

import hami
import numpy as np
import pytest

from hami_tensor.values import as_declared, checked_cast

CONVERTS: list[tuple[Any, str, list[Any]]] = [
    ([[5.5, 3.5]], "float32", [[5.5, 3.5]]),
    ([1, 2], "float32", [1.0, 2.0]),
    ([1.0, 2.0], "int64", [1, 2]),
    ([], "float32", []),
    ([[True]], "float32", [[1.0]]),
    ([1, 0], "bool", [True, False]),
    (np.float64([0.1]), "float32", [float(np.float32(0.1))]),
    (np.int64([3]), "float32", [3.0]),
    (np.int64([255]), "uint8", [255]),
    (np.float64([np.inf, -np.inf]), "float32", [np.inf, -np.inf]),
    (np.uint64([2**63]), "float64", [float(2**63)]),
    (np.array([[1, 2]], ">f4"), "float32", [[1, 2]]),
]
REFUSED: list[tuple[Any, str, str]] = [
    ([1.5], "int64", "expects int64, got float64 with the value 1.5, which int64 does not have"),
    ([float("nan")], "int32", "with the value nan"),
    ([1e400], "int64", "with the value inf"),
    ([1e39], "float32", "expects float32, got float64 with the value 1e+39, which float32 does not have"),
    ([2**24 + 1], "float32", "expects float32, got int64 with the value 16777217"),
    ([-1], "uint8", "with the value -1"),
    ([-1], "uint64", "with the value -1"),
    (np.uint64([2**64 - 1]), "int64", "with the value 18446744073709551615"),
    (np.float64([2.0**63]), "int64", "with the value 9.223372036854775807e+18"),
    ([2], "bool", "expects bool, got int64 with the value 2"),
    (["a"], "float32", "expects float32, got text"),
    ("a", "float32", "expects float32, got text"),
    ([[1, 2], [3]], "float32", "a list whose parts have different lengths or types"),
    ([None], "float32", "expects float32, got an array of object"),
    (np.array([1j]), "float32", "expects float32, got an array of complex128"),
]


@pytest.mark.parametrize(("value", "dtype", "expected"), CONVERTS)
def test_values_that_a_dtype_has_are_converted(value: Any, dtype: str, expected: list[Any]) -> None:
    array = as_declared(value, np.dtype(dtype), "x")
    assert (array.dtype, array.tolist(), array.flags.c_contiguous) == (np.dtype(dtype), expected, True)


@pytest.mark.parametrize(("value", "dtype", "message"), REFUSED)
def test_a_loss_above_rounding_names_both_types(value: Any, dtype: str, message: str) -> None:
    with pytest.raises(hami.DataTypeError) as caught:
        as_declared(value, np.dtype(dtype), 'input "x"')
    assert str(caught.value).startswith('input "x" expects')
    assert message in str(caught.value).replace("9.223372036854776e+18", "9.223372036854775807e+18")


def test_safe_converts_arrays_only_where_no_value_of_the_dtype_is_lost() -> None:
    assert as_declared(np.uint8([7]), np.dtype("float32"), "x", "safe").tolist() == [7.0]
    assert as_declared([7], np.dtype("float32"), "x", "safe").tolist() == [7.0]
    for array in (np.float64([1]), np.int64([1])):
        with pytest.raises(hami.DataTypeError, match="which cannot be converted without loss"):
            as_declared(array, np.dtype("float32"), "x", "safe")


def test_false_converts_nothing() -> None:
    assert as_declared(np.float32([1]), np.dtype("float32"), "x", False).tolist() == [1.0]
    for value in ([1.0], np.float64([1]), np.uint8([1])):
        with pytest.raises(hami.DataTypeError):
            as_declared(value, np.dtype("float32"), "x", False)


def test_every_float64_of_random_bits_is_rounded_as_numpy_does_or_refused() -> None:
    bits = np.random.default_rng(7).integers(0, 2**64, 5000, np.uint64).view(np.float64)
    with np.errstate(all="ignore"):
        rounded = bits.astype(np.float32)
    fits = ~np.isinf(rounded) | np.isinf(bits)
    np.testing.assert_array_equal(as_declared(bits[fits], np.dtype("float32"), "x"), rounded[fits])
    for value in bits[~fits][:50]:
        with pytest.raises(hami.DataTypeError, match="does not have"):
            as_declared(np.float64([value]), np.dtype("float32"), "x")


def test_the_key_cast_takes_three_values() -> None:
    assert [checked_cast(value, "B") for value in ("exact", "safe", "false", False)] == ["exact", "safe", False, False]
    with pytest.raises(hami.ConfigError, match='"cast" is "exact", "safe" or false, got \'no\''):
        checked_cast("no", "B")

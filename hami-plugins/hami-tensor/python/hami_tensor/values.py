"""as_declared: converts numbers, nested lists and arrays to the dtype that a model declares for an input.

>>> import numpy as np
>>> from hami_tensor.values import as_declared
>>> as_declared([[5.1, 3.5, 1.4, 0.2]], np.dtype(np.float32), 'input "x"').dtype
dtype('float32')

Engines in Python use it. It needs NumPy, which hami-tensor itself does not require.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import hami
import numpy as np
from numpy.typing import NDArray

Cast: TypeAlias = Literal["exact", "safe", False]  # the key `cast` of an engine
CASTS = ("exact", "safe", False)


def checked_cast(value: Any, backend: str) -> Cast:
    """Return the value of the key `cast`, which is text in a configuration.

    Raises:
        hami.ConfigError: it is none of "exact", "safe" and false.
    """
    found: Any = False if str(value).lower() == "false" else value
    if found not in CASTS:
        raise hami.ConfigError(f'{backend}: "cast" is "exact", "safe" or false, got {value!r}')
    cast: Cast = found
    return cast


def is_plain(value: Any) -> bool:
    """Return whether a value is a Python number, text, or a list of them, which has no dtype of its own."""
    return isinstance(value, (bool, int, float, str, bytes, list, tuple))


def as_declared(value: Any, dtype: np.dtype[Any], what: str, cast: Cast = "exact") -> NDArray[Any]:
    """Return a value as a contiguous array of the dtype that a model declares.

    Args:
        value: An array, or plain numbers: one, or a nested list of them.
        dtype: The dtype of the input.
        what: Names the input in messages, such as 'OnnxTensor: input "x"'.
        cast: "exact": integers that the dtype has, and finite floats, which are rounded as NumPy does. "safe": only
            what loses nothing for any value of the given dtype; plain numbers as "exact". False: only the same dtype.

    Raises:
        hami.DataTypeError: The conversion loses more than rounding, or `cast` does not allow it.
    """
    plain = is_plain(value)
    if plain and cast is False:
        raise hami.DataTypeError(f"{what} expects an array of {dtype}, got {type(value).__name__} (cast = false)")
    array = _array_of(value, dtype, what) if plain else np.asarray(value)
    if array.dtype == dtype:
        return np.asarray(array, order="C")
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise hami.DataTypeError(f"{what} expects {dtype}, got {_shown(value, array)}")
    safe = _is_safe(array.dtype, dtype)
    if not safe or cast is False:
        if not plain and cast != "exact" and array.dtype.newbyteorder("=") != dtype:
            raise hami.DataTypeError(
                f"{what} expects {dtype}, got {array.dtype}, which cannot be converted without loss; convert it with "
                f'.astype("{dtype}"), or set cast = "exact" to convert what {dtype} has'
            )
        return _checked(array, dtype, what)
    return array.astype(dtype, order="C")


def _array_of(value: Any, dtype: np.dtype[Any], what: str) -> NDArray[Any]:
    """Return plain numbers as an array of int64, uint64, float64 or bool; an empty list has the declared dtype."""
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError):
        raise hami.DataTypeError(
            f"{what} expects an array of {dtype}, got a list whose parts have different lengths or types"
        ) from None
    return array.astype(dtype) if not array.size else array


def _is_safe(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Return whether `target` has every value of `source`.

    NumPy calls the cast from 64-bit integers to float64 "safe", although float64 has only 53 bits of precision.
    """
    rounds = source.kind in "iu" and source.itemsize == 8 and target.kind == "f"
    return np.can_cast(source, target, "safe") and not rounds


def _checked(array: NDArray[Any], dtype: np.dtype[Any], what: str) -> NDArray[Any]:
    """Convert an array if each element keeps its value, or is a float that is rounded to a finite float."""
    with np.errstate(all="ignore"):
        converted = array.astype(dtype, order="C")
        if array.dtype.kind in "iub" or dtype.kind in "iub":
            back = converted.astype(array.dtype)
            lost = (back != array) | ((converted < 0) != (array < 0)) | _out_of_range(array, dtype)
        else:
            lost = ~np.isfinite(converted) & np.isfinite(array)
    if lost.any():
        value = array[lost].flat[0]
        raise hami.DataTypeError(
            f"{what} expects {dtype}, got {array.dtype} with the value {value!s}, which {dtype} does not have; "
            f'convert it with .astype("{dtype}") if the loss is acceptable'
        )
    return converted


def _out_of_range(array: NDArray[Any], dtype: np.dtype[Any]) -> Any:
    """Return where floats are outside of the integers of a dtype: the result of such a cast is undefined."""
    if dtype.kind not in "iu" or array.dtype.kind != "f":
        return np.False_
    limits = np.iinfo(dtype)
    return ~((array >= float(limits.min)) & (array < float(limits.max) + 1))


def _shown(value: Any, array: NDArray[Any]) -> str:
    if isinstance(value, (str, bytes)):
        return "text" if isinstance(value, str) else "bytes"
    return "text" if array.dtype.kind in "SU" else f"an array of {array.dtype}"

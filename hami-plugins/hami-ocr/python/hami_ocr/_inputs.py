"""Reads and validates the inputs of the OCR backends: the `data` of a request, and parameters that are scores."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import hami
import numpy as np


def data_of(item: Any, backend: str) -> Any:
    """Return the `data` of a request. Raises RequestError if the request has none."""
    if "data" not in item:
        raise hami.RequestError(f'{backend}: the request has no key "data"; its keys are {sorted(item.keys())}')
    return item["data"]


def field_of(data: Any, name: str, requirement: str) -> Any:
    """Return one entry of a dict. If there is none, raises DataTypeError with `requirement` and what was given."""
    try:
        return data[name]
    except (TypeError, KeyError, IndexError):
        raise hami.DataTypeError(f"{requirement}, got {describe(data)}") from None


def line_of(item: Any, backend: str) -> Any:
    """Return `data` as a line of CropLines with a valid `image` and `ratio`."""
    line = data_of(item, backend)
    requirement = f'{backend}: "data" must be a line of CropLines (a dict with "image", "ratio" and "box")'
    image, ratio, _ = (field_of(line, name, requirement) for name in ("image", "ratio", "box"))
    if not is_image(image) or image.shape[2:] != (3,) or not image.size:
        raise hami.DataTypeError(
            f'{backend}: the "image" of a line must be a uint8 array H x W x 3, got {describe(image)}'
        )
    if not is_real(ratio) or not 0 < ratio < math.inf:
        raise hami.DataTypeError(
            f'{backend}: the "ratio" of a line must be a finite number above 0 (width / height), got {ratio!r}'
        )
    return line


def is_image(data: Any) -> bool:
    """Return whether `data` is a uint8 array H x W, or H x W x C with 1, 3 or 4 channels; it may be empty."""
    return (
        isinstance(data, np.ndarray)
        and data.dtype == np.uint8
        and (data.ndim == 2 or (data.ndim == 3 and data.shape[2] in (1, 3, 4)))
    )


def is_real(value: Any) -> bool:
    """Return whether `value` is a real number of Python or NumPy."""
    return isinstance(value, Real)


def describe(data: Any) -> str:
    """Describe a value for an error message: dtype and shape of an array, keys of a dict, or the name of the type."""
    if isinstance(data, np.ndarray):
        return f"{data.dtype} {list(data.shape)}"
    return f"a dict with the keys {list(data)}" if isinstance(data, dict) else type(data).__name__


def check_score(value: float | None, name: str, backend: str) -> None:
    """Raise ConfigError if a parameter is not a score from 0 to 1."""
    if value is not None and not 0 <= value <= 1:
        raise hami.ConfigError(f'{backend}: "{name}" must be a score from 0 to 1, got {value}')

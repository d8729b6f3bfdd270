"""How the backends read `data`: an image, or what the step before made; errors say what was given and expected."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import hami
import numpy as np

_LINE = 'a line of CropLines, a dict with "image", "ratio" and "box"'


def data_of(item: Any, backend: str) -> Any:
    """Return the request's `data`, or say that there is none."""
    if "data" not in item:
        raise hami.RequestError(f'{backend}: the request has no "data"; its keys are {sorted(item.keys())}')
    return item["data"]


def field_of(data: Any, name: str, backend: str, expected: str) -> Any:
    """Return one entry of `data`, which is a dict made by the step before."""
    try:
        return data[name]
    except (TypeError, KeyError, IndexError):
        raise hami.DataTypeError(f"{backend} takes {expected}, got {shown(data)}") from None


def line_of(item: Any, backend: str) -> Any:
    """Return `data` as a line of CropLines whose `image` and `ratio` rapidocr can work on."""
    line = data_of(item, backend)
    image, ratio, _ = (field_of(line, name, backend, _LINE) for name in ("image", "ratio", "box"))
    if not is_picture(image) or image.shape[2:] != (3,) or not image.size:
        raise hami.DataTypeError(f'{backend}: the "image" of a line is a uint8 array H x W x 3, got {shown(image)}')
    if not isinstance(ratio, Real) or not 0 < ratio < math.inf:
        raise hami.DataTypeError(f'{backend}: the "ratio" of a line is its width to its height, got {ratio!r}')
    return line


def is_picture(data: Any) -> bool:
    """Tell whether something is a uint8 array H x W, or H x W x 1, 3 or 4; it may be empty."""
    return (
        isinstance(data, np.ndarray)
        and data.dtype == np.uint8
        and (data.ndim == 2 or (data.ndim == 3 and data.shape[2] in (1, 3, 4)))
    )


def shown(data: Any) -> str:
    """Tell what something is, for a message: type and shape of an array, keys of a dict, else the name of its class."""
    if isinstance(data, np.ndarray):
        return f"{data.dtype} {list(data.shape)}"
    return f"a dict with the keys {list(data)}" if isinstance(data, dict) else type(data).__name__

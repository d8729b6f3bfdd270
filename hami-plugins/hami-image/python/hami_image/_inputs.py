"""Reads and validates the inputs of the image backends: `data` as an image or a tensor, and lists of numbers."""

from __future__ import annotations

import math
from typing import Any

import hami
import numpy as np
from numpy.typing import NDArray


def data_of(item: Any, backend: str) -> Any:
    """Return the `data` of a request. Raises RequestError if the request has none."""
    if "data" not in item:
        raise hami.RequestError(f'{backend}: the request has no key "data"; its keys are {sorted(item.keys())}')
    return item["data"]


def image_of(item: Any, backend: str) -> NDArray[Any]:
    """Return `data` as a contiguous, non-empty array that OpenCV can process: H x W, or H x W x 1, 3 or 4."""
    image = array_of(
        data_of(item, backend),
        f'{backend}: "data" must be an image (array H x W or H x W x C, as DecodeMat returns)',
    )
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] not in (1, 3, 4)):
        raise hami.DataTypeError(
            f'{backend}: "data" must be an image (array H x W, or H x W x C with 1, 3 or 4 channels), '
            f"got an array of shape {image.shape}"
        )
    if image.dtype not in (np.uint8, np.uint16, np.float32):
        raise hami.DataTypeError(
            f"{backend}: the image must be uint8, uint16 or float32, got {image.dtype}; convert it with .astype()"
        )
    if image.size == 0:
        raise hami.RequestError(f"{backend}: the image is empty, its shape is {image.shape}")
    return np.ascontiguousarray(image)


def tensor_of(item: Any, backend: str) -> NDArray[Any]:
    """Return `data` as a numeric array C x H x W or N x C x H x W, which may be empty."""
    expected = f'{backend}: "data" must be a tensor (array C x H x W or N x C x H x W)'
    tensor = array_of(data_of(item, backend), expected)
    if tensor.ndim not in (3, 4):
        raise hami.DataTypeError(f"{expected}, got an array of shape {tensor.shape}")
    if tensor.dtype.kind not in "iuf":
        raise hami.DataTypeError(f"{backend}: the tensor must have a numeric dtype, got {tensor.dtype}")
    return tensor


def array_of(data: Any, expected: str) -> NDArray[Any]:
    """Return `data` as an array without a copy: an array as it is, other objects through DLPack."""
    if isinstance(data, np.ndarray):
        return data
    if hasattr(data, "__dlpack__"):
        try:
            return hami.to_numpy(data)
        except Exception as error:  # an object may raise any exception here
            reason = error.__cause__ or error
            raise hami.DataTypeError(
                f"{expected}, got a {type(data).__name__} that cannot be read through DLPack: {reason}"
            ) from error
    raise hami.DataTypeError(f"{expected}, got {type(data).__name__}")


def finite_floats(values: Any) -> list[float] | None:
    """Return the numbers of a list, tuple or array. Returns None if `values` is anything else or not all finite."""
    if not isinstance(values, (list, tuple)) and not hasattr(values, "__dlpack__"):
        return None  # text, bytes, dicts and sets are iterable too
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError, OverflowError):
        return None
    return numbers if all(map(math.isfinite, numbers)) else None

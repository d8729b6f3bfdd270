"""What the image backends share: one picture per call, and the checks on what came in as `data`."""

from __future__ import annotations

import math
from typing import Any

import hami
import numpy as np


class OneByOne(hami.Backend):
    """Runs `apply` on each request; stateless, and OpenCV releases the GIL, so any number of threads may call it."""

    max = 1
    thread = "concurrent"

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = self.apply(item)

    def apply(self, item: Any) -> Any:
        raise NotImplementedError


def data_of(item: Any, backend: str) -> Any:
    """Return the request's `data`, or say that there is none."""
    if "data" not in item:
        raise hami.RequestError(f'{backend}: the request has no "data"; its keys are {sorted(item.keys())}')
    return item["data"]


def mat_of(item: Any, backend: str) -> np.ndarray:
    """Return `data` as an array OpenCV can work on: H x W or H x W x 1, 3 or 4, not empty."""
    data = data_of(item, backend)
    mat = array_of(data, f"{backend} takes a picture (an array H x W or H x W x C, as DecodeMat gives)")
    if mat.ndim not in (2, 3) or (mat.ndim == 3 and mat.shape[2] not in (1, 3, 4)):
        raise hami.DataTypeError(
            f"{backend} takes a picture (an array H x W or H x W x C with 1, 3 or 4 channels), "
            f"got an array of shape {mat.shape}"
        )
    if mat.dtype not in (np.uint8, np.uint16, np.float32):
        raise hami.DataTypeError(f"{backend} takes a picture of uint8, uint16 or float32, got {mat.dtype}")
    if mat.size == 0:
        raise hami.RequestError(f"{backend}: the picture is empty, its shape is {mat.shape}")
    return np.ascontiguousarray(mat)


def tensor_of(item: Any, backend: str) -> np.ndarray:
    """Return `data` as an array C x H x W or N x C x H x W; it may be empty."""
    tensor = array_of(data_of(item, backend), f"{backend} takes a tensor (an array C x H x W or N x C x H x W)")
    if tensor.ndim not in (3, 4):
        raise hami.DataTypeError(
            f"{backend} takes a tensor (an array C x H x W or N x C x H x W), got an array of shape {tensor.shape}"
        )
    if tensor.dtype.kind not in "iuf":
        raise hami.DataTypeError(f"{backend} takes a tensor of numbers, got {tensor.dtype}")
    return tensor


def array_of(data: Any, expected: str) -> np.ndarray:
    """View `data` as an array without a copy: arrays as they are, others through DLPack."""
    if isinstance(data, np.ndarray):
        return data
    if hasattr(data, "__dlpack__"):
        try:
            return np.from_dlpack(data)
        except Exception as error:  # whatever the object raises when it is asked
            raise hami.DataTypeError(
                f"{expected}, got a {type(data).__name__} that is not readable: {error}"
            ) from error
    raise hami.DataTypeError(f"{expected}, got {type(data).__name__}")


def finite_floats(values: Any) -> list[float] | None:
    """Read a list, tuple or array of numbers; None if it is none, or one of them is not finite."""
    if not isinstance(values, (list, tuple)) and not hasattr(values, "__dlpack__"):
        return None  # text, bytes, dicts and sets would be read element by element too
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError, OverflowError):
        return None
    return numbers if all(map(math.isfinite, numbers)) else None

"""nms: non-maximum suppression of boxes in NumPy arrays, by the native library and without the GIL.

>>> import numpy as np
>>> from hami_tensor.boxes import nms
>>> nms(np.float32([[0, 0, 4, 4], [0, 0, 4, 5], [8, 8, 9, 9]]), np.float32([0.9, 0.8, 0.7])).tolist()
[0, 2]

It needs NumPy, which hami-tensor itself does not require.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import hami
import numpy as np
from numpy.typing import ArrayLike, NDArray

_ADDRESS, _INTEGER, _NUMBER = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double


_NMS = ctypes.CFUNCTYPE(
    *(_INTEGER, _ADDRESS, _INTEGER, _ADDRESS, _ADDRESS, _INTEGER, _NUMBER, _NUMBER, _INTEGER),
    *(_ADDRESS, ctypes.POINTER(_INTEGER)),
)


@functools.cache
def _functions() -> Any:
    return hami.native.functions("hami-tensor::TensorFunctions", nms=_NMS)


def nms(
    boxes: ArrayLike,
    scores: ArrayLike,
    classes: ArrayLike | None = None,
    *,
    iou_threshold: float = 0.45,
    score_threshold: float = -np.inf,
    max_boxes: int | None = None,
) -> NDArray[np.int64]:
    """Return the indices of the boxes that no better one of their class overlaps, the best first.

    Args:
        boxes: N x 4 (x1, y1, x2, y2), or N x 5 (centre x, centre y, width, height, angle in radians).
        scores: N. Of equal scores, the lower index comes first.
        classes: N; None: all boxes are of one class.
        iou_threshold: A box whose intersection over union with a better one is larger is removed; 0 to 1.
        score_threshold: Boxes with this score or less are removed.
        max_boxes: The most indices to return; None: all.

    Boxes with NaN are removed first, and remove no others.

    Raises:
        ValueError: The shapes do not fit, or a threshold is out of range.
    """
    coordinates = np.ascontiguousarray(boxes, np.float32)
    numbers = np.ascontiguousarray(scores, np.float64)
    kinds = None if classes is None else np.ascontiguousarray(classes, np.float64)
    if coordinates.ndim != 2 or coordinates.shape[1] not in (4, 5):
        raise ValueError(f"boxes must be N x 4 or N x 5, got an array of shape {coordinates.shape}")
    for name, array in (("scores", numbers), ("classes", kinds)):
        if array is not None and array.shape != coordinates.shape[:1]:
            raise ValueError(f"{name} must have one number for each of {len(coordinates)} boxes, got {array.shape}")
    if not 0 <= iou_threshold <= 1:
        raise ValueError(f"iou_threshold must be from 0 to 1, got {iou_threshold}")
    limit = len(coordinates) if max_boxes is None else min(max_boxes, len(coordinates))
    if limit < 0:
        raise ValueError(f"max_boxes must not be negative, got {max_boxes}")
    indices = np.empty(limit, np.int64)
    nan_boxes = _INTEGER()
    found = _functions().nms(
        *(_start(coordinates), coordinates.shape[1], _start(numbers), None if kinds is None else _start(kinds)),
        *(len(coordinates), iou_threshold, score_threshold, limit, _start(indices), ctypes.byref(nan_boxes)),
    )
    if found < 0:
        raise MemoryError(f"non-maximum suppression of {len(coordinates)} boxes")
    return indices[:found]


def _start(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address

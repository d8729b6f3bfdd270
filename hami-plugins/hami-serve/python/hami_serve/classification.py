"""The classification extension of Triton: the largest values of an output, each as the text "score:index:label"."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hami_serve.datatypes import Array
from hami_serve.errors import BadRequest, short

MAX_CLASSES = 1 << 20  # texts of an output: each needs some 60 bytes, also for a score of one byte


def checked_class_count(name: str, count: object) -> int:
    """Return the parameter `classification` of an output; 0 is none."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise BadRequest(f'the classification of output "{short(name)}" is a number of classes, got {short(count)}')
    return count


def classified(name: str, array: Array, count: int, labels: Sequence[str]) -> Array:
    """Return the classes with the `count` largest values, the largest first, as text.

    An array of two or more axes has rows along axis 0, and the result is [rows, count]; that of one axis is one row,
    and the result is [count]. Equal values are in the order of their indices, and NaN comes last.

    Raises:
        BadRequest: The output is not of numbers, or these are more than MAX_CLASSES classes.
    """
    if array.dtype.kind not in "iuf":
        raise BadRequest(f'output "{short(name)}" is of {array.dtype.name}; only outputs of numbers have classes')
    rows = array.reshape(len(array), math.prod(array.shape[1:])) if array.ndim > 1 else array.reshape(1, -1)
    count = min(count, rows.shape[1])
    if len(rows) * count > MAX_CLASSES:
        raise BadRequest(
            f'output "{short(name)}" has {len(rows)} rows with {count} classes each; an answer has at most '
            f"{MAX_CLASSES} classes"
        )
    texts = np.empty((len(rows), count), object)
    for at, row in enumerate(rows):
        for rank, index in enumerate(_largest_first(row, count)):
            score = f"{row[index]:f}" if row.dtype.kind == "f" else str(row[index])
            label = f":{labels[index]}" if index < len(labels) else ""
            texts[at, rank] = f"{score}:{index}{label}"
    return texts if array.ndim > 1 else texts[0]


def _largest_first(row: Array, count: int) -> list[int]:
    """Return the indices of the `count` largest values."""
    if row.dtype.kind == "f":
        found = np.argsort(-row, kind="stable")
    else:
        found = len(row) - 1 - np.argsort(row[::-1], kind="stable")[::-1]  # -row could overflow
    indices: list[int] = found[:count].tolist()
    return indices

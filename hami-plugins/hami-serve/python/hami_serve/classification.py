"""The classification extension of Triton: the largest values of an output, each as the text "score:index:label"."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hami_serve.datatypes import STEP, Array
from hami_serve.errors import BadRequest, short
from hami_serve.json_steps import pause

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
    step = max(1, STEP // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        indices = _largest_first(part)[:, :count]
        values = np.take_along_axis(part, indices, 1)
        for column in range(0, count, STEP):
            here = slice(column, column + STEP)
            texts[start : start + step, here] = _texts(values[:, here], indices[:, here], labels)
            pause()
    return texts if array.ndim > 1 else texts[0]


def _texts(values: Array, indices: Array, labels: Sequence[str]) -> Array:
    form = "%f:%d" if values.dtype.kind == "f" else "%d:%d"
    found = [form % each for each in zip(values.ravel().tolist(), indices.ravel().tolist(), strict=True)]
    if labels:
        at = indices.ravel().tolist()
        found = [
            f"{text}:{labels[index]}" if index < len(labels) else text for text, index in zip(found, at, strict=True)
        ]
    texts: Array = np.array(found, object).reshape(values.shape)
    return texts


def _largest_first(rows: Array) -> Array:
    """Return the indices of each row by its values."""
    if rows.dtype.kind == "f":
        order: Array = np.argsort(-rows, axis=1, kind="stable")
    else:
        order = rows.shape[1] - 1 - np.argsort(rows[:, ::-1], axis=1, kind="stable")[:, ::-1]  # -rows could overflow
    return order

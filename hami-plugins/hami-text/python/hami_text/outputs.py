"""The outputs of models: arrays that are read from results, and the probabilities of a classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import hami
import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float32]


def array_of(data: Any, takes: str) -> NDArray[Any]:
    """Return the array that a value is.

    Raises:
        hami.DataTypeError: It is none. The message begins with `takes`.
    """
    try:
        array: NDArray[Any] = np.asarray(data if isinstance(data, (list, tuple)) else hami.to_numpy(data))
    except Exception as error:
        raise hami.DataTypeError(f"{takes}, got {type(data).__name__}: {error}") from error
    return array


def scores_of(data: Any, backend: str) -> NDArray[Any]:
    """Return the output `logits` of a model, or its only one.

    Raises:
        hami.RequestError: It has several outputs, and none of this name.
    """
    if isinstance(data, Mapping):
        if "logits" not in data and len(data) != 1:
            raise hami.RequestError(f"{backend}: the model has the outputs {list(data)}; one of them must be logits")
        data = data["logits"] if "logits" in data else next(iter(data.values()))
    return array_of(data, f"{backend} takes the result of a model")


def logits_of(data: Any, backend: str) -> Numbers:
    """Return the output `logits` of a model, or its only one, as a vector.

    Raises:
        hami.RequestError: It has another shape than [1, classes].
    """
    array = scores_of(data, backend)
    if array.ndim != 2 or array.shape[0] != 1:
        raise hami.RequestError(f"{backend} takes scores [1, classes], got {array.dtype} {list(array.shape)}")
    return np.asarray(array[0], np.float32)


def activated(logits: Numbers, activation: str) -> Numbers:
    """Apply "sigmoid", "softmax" or "none"."""
    if activation == "sigmoid":
        return np.asarray(1 / (1 + np.exp(-logits.astype(np.float64))), np.float32)
    if activation == "softmax":
        powers = np.exp(logits.astype(np.float64) - float(logits.max()))
        return np.asarray(powers / powers.sum(), np.float32)
    return logits

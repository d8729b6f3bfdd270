"""From a request's `data` to arrays a model takes: by name or in order, checked, converted only without loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import hami
import numpy as np

from hami_onnx._model import Model, Port


class Feed(NamedTuple):
    """One request, ready to run: its arrays in the order of the inputs, and how many rows of a batch they are."""

    arrays: list[np.ndarray]
    rows: int
    alone: bool  # it came without a batch axis, so its outputs go without one


def feed_of(item: Any, model: Model, owner: str) -> Feed:
    """Read a request; errors say which input takes what."""
    if "data" not in item:
        raise hami.RequestError(f'{owner}: the request has no "data"; its keys are {sorted(item.keys())}')
    arrays = [
        _array(value, port, owner)
        for port, value in zip(model.inputs, _values(item["data"], model, owner), strict=True)
    ]
    alone = model.rows != 0 and all(
        array.ndim == len(port.shape) - 1 for array, port in zip(arrays, model.inputs, strict=True)
    )
    if alone:
        arrays = [array[np.newaxis] for array in arrays]
    for array, port in zip(arrays, model.inputs, strict=True):
        _check_shape(array, port, model, owner)
    if model.rows == 0:
        return Feed(arrays, 1, False)
    rows = {array.shape[0] for array in arrays}
    if len(rows) > 1:
        raise hami.RequestError(f"{owner}: the inputs differ in their rows (axis 0): {_shown(arrays, model)}")
    count = rows.pop()
    said = item.get("request_size", count)
    if said != count:
        raise hami.RequestError(f'{owner}: "request_size" is {said}, but the data has {count} rows (axis 0)')
    return Feed(arrays, count, alone)


def _values(data: Any, model: Model, owner: str) -> list[Any]:
    """One value for each input: by name from a dict, in order from a list, the data itself if there is one input."""
    names = [port.name for port in model.inputs]
    if isinstance(data, Mapping):
        if set(data.keys()) != set(names):
            raise hami.RequestError(f"{owner}: the inputs are {names}, got a dict of {list(data.keys())}")
        return [data[name] for name in names]
    if isinstance(data, (list, tuple)):
        if len(data) != len(names):
            raise hami.RequestError(f"{owner}: the inputs are {names}, got a list of {len(data)}")
        return list(data)
    if len(names) != 1:
        raise hami.DataTypeError(
            f"{owner} takes a dict by input name or a list in this order: {names}, got {type(data).__name__}"
        )
    return [data]


def _array(value: Any, port: Port, owner: str) -> np.ndarray:
    if not isinstance(value, (np.ndarray, np.generic)):
        if not hasattr(value, "__dlpack__"):
            raise hami.DataTypeError(
                f'{owner}: input "{port.name}" takes an array ({port}), got {type(value).__name__}'
            )
        try:
            value = np.from_dlpack(value)
        except Exception as error:  # whatever the object raises when it is asked
            raise hami.DataTypeError(
                f'{owner}: input "{port.name}" takes an array in memory of the CPU, '
                f"got a {type(value).__name__} that is not readable: {error}"
            ) from error
    array = np.asarray(value)
    if port.dtype is not None and port.dtype.hasobject:
        return _texts(array, port, owner)
    if port.dtype is None or array.dtype == port.dtype:
        return np.asarray(array, order="C")
    if not _fits(array.dtype, port.dtype):
        raise hami.DataTypeError(
            f'{owner}: input "{port.name}" takes {port.dtype}, got {array.dtype}, which does not fit without loss; '
            f"convert it with .astype({port.dtype.name!r}) if that is what you want"
        )
    return array.astype(port.dtype, order="C")


def _fits(given: np.dtype[Any], taken: np.dtype[Any]) -> bool:
    """Tell whether no value is lost; NumPy calls it safe to make integers of 64 bits floats of 53."""
    wide = given.kind in "iu" and given.itemsize == 8 and taken.kind == "f"
    return np.can_cast(given, taken, "safe") and not wide


def _texts(array: np.ndarray, port: Port, owner: str) -> np.ndarray:
    """Make an array of str; of anything else onnxruntime would take what str() shows, "b'cat'" and "None"."""
    texts = array.astype(object, order="C")
    others = {type(value).__name__ for value in texts.flat if not isinstance(value, str)}
    if others:
        raise hami.DataTypeError(f'{owner}: input "{port.name}" takes str, got an array of {", ".join(sorted(others))}')
    return texts


def _check_shape(array: np.ndarray, port: Port, model: Model, owner: str) -> None:
    if not port.shape:  # a scalar, or a rank the model does not say
        return
    fits = array.ndim == len(port.shape) and all(
        size == wanted or wanted is None or (axis == 0 and model.rows)  # rows are counted for the whole batch
        for axis, (size, wanted) in enumerate(zip(array.shape, port.shape, strict=True))
    )
    if not fits:
        raise hami.RequestError(f'{owner}: input "{port.name}" takes {port}, got {array.dtype} {list(array.shape)}')


def _shown(arrays: list[np.ndarray], model: Model) -> str:
    return ", ".join(f"{port.name} {list(array.shape)}" for port, array in zip(model.inputs, arrays, strict=True))

"""Feed: the input arrays of one request, read from its `data`, validated, and converted only without loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import hami
import numpy as np
from numpy.typing import NDArray

from hami_onnx._model import Model, TensorSpec


class Feed(NamedTuple):
    """One request that is ready to run."""

    arrays: list[NDArray[Any]]  # in the order of the model's inputs, each with the batch axis if the model has one
    rows: int  # how many rows of a batch the request is
    without_batch_axis: bool  # the data has no batch axis, so the result gets none either


def read_feed(item: Any, model: Model, backend: str) -> Feed:
    """Read a request. Raises RequestError or DataTypeError if the model cannot run it."""
    if "data" not in item:
        raise hami.RequestError(f'{backend}: the request has no key "data"; its keys are {sorted(item.keys())}')
    values = _values(item["data"], model, backend)
    arrays = [_array(value, spec, backend) for spec, value in zip(model.inputs, values, strict=True)]
    without_batch_axis = model.has_batch_axis and all(
        array.ndim == len(spec.shape) - 1 for array, spec in zip(arrays, model.inputs, strict=True)
    )
    if without_batch_axis:
        arrays = [array[np.newaxis] for array in arrays]
    for array, spec in zip(arrays, model.inputs, strict=True):
        _check_shape(array, spec, model, backend)
    if not model.has_batch_axis:
        return Feed(arrays, 1, False)
    rows = {array.shape[0] for array in arrays}
    if len(rows) > 1:
        shown = ", ".join(f"{spec.name} {list(array.shape)}" for spec, array in zip(model.inputs, arrays, strict=True))
        raise hami.RequestError(f"{backend}: all inputs must have the same number of rows (axis 0), got {shown}")
    count = rows.pop()
    request_size = item.get("request_size", count)
    if request_size != count:
        raise hami.RequestError(
            f'{backend}: "request_size" must be the number of rows (axis 0) of the data, {count}, got {request_size}'
        )
    return Feed(arrays, count, without_batch_axis)


def _values(data: Any, model: Model, backend: str) -> list[Any]:
    """Return one value per input: by name from a dict, in order from a list, or `data` itself for a single input."""
    names = [spec.name for spec in model.inputs]
    if isinstance(data, Mapping):
        if set(data.keys()) != set(names):
            raise hami.RequestError(
                f"{backend}: the model has the inputs {names}, got a dict with the keys {list(data.keys())}"
            )
        return [data[name] for name in names]
    if isinstance(data, (list, tuple)):
        if len(data) != len(names):
            raise hami.RequestError(f"{backend}: the model has the inputs {names}, got a list of length {len(data)}")
        return list(data)
    if len(names) != 1:
        raise hami.DataTypeError(
            f'{backend}: "data" must be a dict by input name, or a list in the order {names}, got {type(data).__name__}'
        )
    return [data]


def _array(value: Any, spec: TensorSpec, backend: str) -> NDArray[Any]:
    """Return a value as a contiguous array of the dtype that the input takes."""
    if isinstance(value, (str, bytes)) and spec.dtype is not None and spec.dtype.hasobject:
        value = np.full((1,) * len(spec.shape), value, np.object_)  # a tensor of one string
    if not isinstance(value, (np.ndarray, np.generic)):
        if not hasattr(value, "__dlpack__"):
            raise hami.DataTypeError(
                f'{backend}: input "{spec.name}" must be an array ({spec}), got {type(value).__name__}'
            )
        try:
            value = hami.to_numpy(value)
        except Exception as error:  # an object may raise any exception here
            raise hami.DataTypeError(
                f'{backend}: input "{spec.name}" must be an array in CPU memory, '
                f"got a {type(value).__name__} that cannot be read through DLPack: {error.__cause__ or error}"
            ) from error
    array = np.asarray(value)
    if spec.dtype is not None and spec.dtype.hasobject:
        return _strings(array, spec, backend)
    if spec.dtype is None or array.dtype == spec.dtype:
        return np.asarray(array, order="C")
    if not _converts_without_loss(array.dtype, spec.dtype):
        raise hami.DataTypeError(
            f'{backend}: input "{spec.name}" expects {spec.dtype}, got {array.dtype}, which cannot be converted '
            f"without loss; convert it with .astype({spec.dtype.name!r}) if the loss is acceptable"
        )
    return array.astype(spec.dtype, order="C")


def _converts_without_loss(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Return whether `target` can hold every value of `source`.

    NumPy calls the cast from 64-bit integers to float64 "safe", although float64 has only 53 bits of precision.
    """
    rounds = source.kind in "iu" and source.itemsize == 8 and target.kind == "f"
    return np.can_cast(source, target, "safe") and not rounds


def _strings(array: NDArray[Any], spec: TensorSpec, backend: str) -> NDArray[np.object_]:
    """Return an array of str; bytes are UTF-8, as the Open Inference Protocol has strings.

    onnxruntime would convert other objects with str(), so that b"cat" becomes "b'cat'".
    """
    strings = array.astype(np.object_, order="C")
    kinds = {type(value) for value in strings.flat}
    if kinds & {bytes, np.bytes_}:
        try:
            for index, value in enumerate(strings.flat):
                if isinstance(value, bytes):
                    strings.flat[index] = value.decode()
        except UnicodeDecodeError as error:
            raise hami.DataTypeError(f'{backend}: input "{spec.name}" expects UTF-8 text, got bytes: {error}') from None
    others = {kind.__name__ for kind in kinds if not issubclass(kind, (str, bytes))}
    if others:
        raise hami.DataTypeError(
            f'{backend}: input "{spec.name}" expects str or UTF-8 bytes, got an array of {", ".join(sorted(others))}'
        )
    return strings


def _check_shape(array: NDArray[Any], spec: TensorSpec, model: Model, backend: str) -> None:
    if not spec.shape:  # a scalar, or the model does not state the rank
        return
    fits = array.ndim == len(spec.shape) and all(
        size == expected or expected is None or (axis == 0 and model.has_batch_axis)  # run_batch checks the rows
        for axis, (size, expected) in enumerate(zip(array.shape, spec.shape, strict=True))
    )
    if not fits:
        raise hami.RequestError(f'{backend}: input "{spec.name}" expects {spec}, got {array.dtype} {list(array.shape)}')

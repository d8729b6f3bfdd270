"""Feed: the input arrays of one request, read from its `data`, validated, and converted to what the model declares."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import hami
import numpy as np
from hami_tensor.values import Cast, as_declared, is_plain
from numpy.typing import NDArray

from hami_onnx._model import Model
from hami_onnx._specs import TensorSpec

_NOTHING: dict[str, Any] = {}
_SMALL = 1 << 16  # bytes; larger arrays that all rows share are compared by their address


class Feed(NamedTuple):
    """One request that is ready to run."""

    arrays: list[Any]  # in the order of the model's inputs; an array, or a list of arrays for a sequence
    extra: dict[str, Any]  # the inputs by name that other requests may leave out
    rows: int  # how many rows of a batch the request is
    without_batch_axis: bool  # the data has no batch axis, so the result gets none either


def read_feed(item: Any, model: Model, backend: str) -> Feed:
    """Read a request. Raises RequestError or DataTypeError if the model cannot run it."""
    values, given = _values(model.keys.data_of(item), model, backend)
    arrays = [_input(value, spec, backend, model.cast) for spec, value in zip(model.inputs, values, strict=True)]
    extra = _extra(given, model, backend) if model.optional else _NOTHING
    rows = model.rows
    without_batch_axis = _is_without_batch_axis(arrays, model)
    if without_batch_axis:
        arrays = [
            array if axis is None else np.expand_dims(array, axis)
            for array, axis in zip(arrays, rows.lone_axes, strict=True)
        ]
    for array, spec, axis in zip(arrays, model.inputs, rows.input_axes, strict=True):
        _check_shape(array, spec, axis, model, backend)
    if not rows.joins:
        return Feed(arrays, extra, 1, without_batch_axis)
    count = _rows_of(arrays, model, backend)
    request_size = item.get("request_size", count)
    if request_size != count:
        raise hami.RequestError(
            f'{backend}: "request_size" must be the number of rows ({_axis_text(model)}) of the data, {count}, '
            f"got {request_size}"
        )
    return Feed(arrays, extra, count, without_batch_axis)


def convert_values(data: Any, model: Model, backend: str) -> dict[str, Any]:
    """Return the inputs of a request by name, as arrays that the model takes. Raises RequestError or DataTypeError."""
    values, given = _values(data, model, backend)
    arrays = {
        spec.name: _input(value, spec, backend, model.cast) for spec, value in zip(model.inputs, values, strict=True)
    }
    extra = _extra(given, model, backend)
    return {**arrays, **{name: array for name, array in extra.items() if array is not None}}


def _extra(given: Mapping[str, Any], model: Model, backend: str) -> dict[str, Any]:
    """Return the inputs that the request has although it might leave them out."""
    return {
        spec.name: None if given[spec.name] is None else _input(given[spec.name], spec, backend, model.cast)
        for spec in model.optional
        if spec.name in given
    }


def _is_without_batch_axis(arrays: list[Any], model: Model) -> bool:
    """Return whether all arrays with rows lack the axis of the rows."""
    first = model.rows.first_lone
    if first is None or arrays[first].ndim != len(model.inputs[first].shape) - 1:
        return False
    return all(
        axis is None or (spec.shape and array.ndim == len(spec.shape) - 1)
        for array, spec, axis in zip(arrays, model.inputs, model.rows.lone_axes, strict=True)
    )


def group_key(feed: Feed, model: Model) -> Hashable:
    """Return what requests that may run together have in common: shapes, and the values of inputs that rows share."""
    if feed.extra or not model.rows.joins:
        return id(feed)  # an input that others leave out, or another value of an initializer: alone
    if model.rows.only_first_axes:
        return tuple([array.shape[1:] for array in feed.arrays])
    return tuple(
        array.shape[:axis] + array.shape[axis + 1 :] if axis is not None else _content(array)
        for array, axis in zip(feed.arrays, model.rows.input_axes, strict=True)
    )


def _content(array: NDArray[Any]) -> Hashable:
    if array.dtype.hasobject:
        return array.shape, tuple(array.flat)
    if array.nbytes <= _SMALL:
        return array.shape, array.tobytes()
    return array.shape, array.__array_interface__["data"][0]


def _axis_text(model: Model) -> str:
    axes = sorted({axis for axis in model.rows.input_axes if axis is not None})
    return f"axis {' or '.join(map(str, axes))}"


def _rows_of(arrays: list[Any], model: Model, backend: str) -> int:
    counts = set()
    for index, axis in model.rows.row_inputs:
        array = arrays[index]
        if array.ndim <= axis:
            raise hami.RequestError(
                f"{backend}: the rows of the data are its axis {axis}, got {array.dtype} {list(array.shape)}"
            )
        counts.add(array.shape[axis])
    if len(counts) > 1:
        shown = ", ".join(f"{spec.name} {list(array.shape)}" for spec, array in zip(model.inputs, arrays, strict=True))
        raise hami.RequestError(
            f"{backend}: all inputs must have the same number of rows ({_axis_text(model)}), got {shown}"
        )
    return int(counts.pop())


def _values(data: Any, model: Model, backend: str) -> tuple[list[Any], Mapping[str, Any]]:
    """Return one value per required input, and what was given by name.

    Data is a dict by name, a list in the order of the inputs, or the value of the only input.
    """
    names = [spec.name for spec in model.inputs]
    if isinstance(data, Mapping):
        known = {*names, *(spec.name for spec in model.optional)}
        if not set(names) <= set(data.keys()) <= known:
            may = f" and may have {[spec.name for spec in model.optional]}" if model.optional else ""
            raise hami.RequestError(
                f"{backend}: the model has the inputs {names}{may}, got a dict with the keys {list(data.keys())}"
            )
        return [data[name] for name in names], data
    if len(names) == 1 and model.inputs[0].is_sequence and not _is_wrapped_sequence(data):
        return [data], {}
    if len(names) == 1 and isinstance(data, (list, tuple)) and data and all(map(is_plain, data)):
        return [data[0] if model.inputs[0].is_sequence else data], {}  # without arrays, the rows themselves
    if isinstance(data, (list, tuple)):
        if len(data) != len(names):
            raise hami.RequestError(f"{backend}: the model has the inputs {names}, got a list of length {len(data)}")
        return list(data), {}
    if len(names) != 1:
        raise hami.DataTypeError(
            f'{backend}: "data" must be a dict by input name, or a list in the order {names}, got {type(data).__name__}'
        )
    return [data], {}


def _is_wrapped_sequence(data: Any) -> bool:
    return isinstance(data, (list, tuple)) and len(data) == 1 and isinstance(data[0], (list, tuple))


def _input(value: Any, spec: TensorSpec, backend: str, cast: Cast) -> Any:
    """Return the value of an input: an array, or a list of arrays for a sequence."""
    if not spec.is_sequence:
        return _array(value, spec, backend, cast)
    if not isinstance(value, (list, tuple)):
        raise hami.DataTypeError(
            f'{backend}: input "{spec.name}" must be a list of arrays ({spec}), got {type(value).__name__}'
        )
    return [_array(each, spec, backend, cast) for each in value]


def _array(value: Any, spec: TensorSpec, backend: str, cast: Cast) -> NDArray[Any]:
    """Return a value as a contiguous array of the dtype that the input takes."""
    if is_plain(value) and spec.dtype is not None:
        if not spec.dtype.hasobject:
            return as_declared(value, spec.dtype, f'{backend}: input "{spec.name}" ({spec})', cast)
        value = _texts(value, spec)
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
    return as_declared(array, spec.dtype, f'{backend}: input "{spec.name}"', cast)


def _texts(value: Any, spec: TensorSpec) -> NDArray[np.object_]:
    """Return one text, or a list of texts, as an array; a list is one row for each text if a row is one text."""
    array = np.asarray(value, np.object_)
    if array.ndim == 0:
        return array.reshape((1,) * len(spec.shape))
    return array[:, None] if array.ndim == 1 and len(spec.shape) == 2 and spec.shape[1] == 1 else array


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


def _check_shape(array: Any, spec: TensorSpec, row_axis: int | None, model: Model, backend: str) -> None:
    if not spec.shape or spec.is_sequence:  # a scalar, or the model does not state the rank
        return
    shape = array.shape
    fits = len(shape) == len(spec.shape)
    if fits:
        for axis, expected in enumerate(spec.shape):
            if expected is not None and shape[axis] != expected and axis != row_axis:  # run_batch pads a short batch
                fits = False
    if not fits:
        text = f'{backend}: input "{spec.name}" expects {spec}, got {array.dtype} {list(array.shape)}'
        raise hami.RequestError(text + _why_not_padded(array, spec, model))


def _why_not_padded(array: Any, spec: TensorSpec, model: Model) -> str:
    """Return why data with fewer rows than the model takes is not padded."""
    if model.rows.joins or array.ndim != len(spec.shape) or array.shape[1:] != spec.shape[1:]:
        return ""
    return f"; a batch with fewer rows is not padded, because {model.joining.reason}"

"""How the inputs of a call get into the buffers of a slot: checked, quantised if needed, and copied."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import hami
import numpy as np
from numpy.typing import NDArray

from hami_accel.device import Buffers
from hami_accel.errors import InputError
from hami_accel.specs import TensorSpec


def write_inputs(inputs: Any, specs: Sequence[TensorSpec], buffers: Buffers, model: str, unchecked: bool) -> None:
    """Copy the inputs of one task into the buffers of its slot. Raises InputError before anything is copied."""
    if len(specs) == 1 and isinstance(inputs, np.ndarray) and not buffers.bound:
        (target,) = buffers.inputs.values()
        if inputs.shape == target.shape and inputs.dtype == target.dtype:  # the common case, in a third of the time
            target[...] = inputs
            return
    values = _by_spec(inputs, specs, buffers.bound, model)
    for spec, _ in values:
        if not isinstance(buffers.inputs[spec.name], np.ndarray):
            raise InputError(
                f'{model}: "{spec.name}" is bound to memory of the device, which the caller writes; start without it'
            )
    for spec, array in [(spec, _converted(spec, value, model, unchecked)) for spec, value in values]:
        target = buffers.inputs[spec.name]
        if array.shape == target.shape and array.dtype == target.dtype:
            target[...] = array
        else:  # unchecked: the same number of bytes
            np.copyto(target.reshape(-1).view(np.uint8), array.reshape(-1).view(np.uint8))


def seconds(value: Any, name: str, model: str) -> float | None:
    """Return a time that a caller gives; None for none and for an infinite one. Raises InputError for other objects."""
    if value is None:
        return None
    try:
        found = math.nan if isinstance(value, str) else float(value)
    except OverflowError:  # an integer beyond any float
        found = math.inf if int(value) > 0 else -math.inf
    except (TypeError, ValueError):
        found = math.nan
    if math.isnan(found):
        raise InputError(f"{model}: {name} must be a number of seconds, got {value!r}")
    return None if found == math.inf else found


def as_array(value: Any, name: str, model: str) -> NDArray[Any]:
    """Return an array that shares the memory of `value`, which is of NumPy or has DLPack, or a copy of a list."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack__"):
        try:
            return hami.to_numpy(value)
        except Exception as error:  # an object may raise any exception here
            raise InputError(
                f'{model}: "{name}" takes an array in CPU memory, got a {type(value).__name__} that cannot be read '
                f"through DLPack: {error.__cause__ or error}"
            ) from error
    raise InputError(f'{model}: "{name}" takes an array or an object with DLPack, got {type(value).__name__}')


def _by_spec(
    inputs: Any, specs: Sequence[TensorSpec], bound: Mapping[str, Any], model: str
) -> list[tuple[TensorSpec, Any]]:
    free = [spec for spec in specs if spec.name not in bound]
    if inputs is None:
        return []
    if isinstance(inputs, Mapping):
        given, names = set(inputs), {spec.name for spec in specs}
        if not {spec.name for spec in free} <= given <= names:
            raise InputError(f"{model}: the inputs are {sorted(names)}, got {sorted(map(str, given))}")
        return [(spec, inputs[spec.name]) for spec in specs if spec.name in given]
    if len(free) == 1 and not (isinstance(inputs, (list, tuple)) and _is_list_of_arrays(inputs)):
        return [(free[0], inputs)]
    if not isinstance(inputs, (list, tuple)) or len(inputs) != len(free):
        count = len(inputs) if isinstance(inputs, (list, tuple)) else f"one {type(inputs).__name__}"
        raise InputError(f"{model}: takes {len(free)} inputs {[spec.name for spec in free]}, got {count}")
    return list(zip(free, inputs, strict=True))


def _is_list_of_arrays(inputs: Sequence[Any]) -> bool:
    return bool(inputs) and all(isinstance(one, np.ndarray) or hasattr(one, "__dlpack__") for one in inputs)


def _converted(spec: TensorSpec, value: Any, model: str, unchecked: bool) -> NDArray[Any]:
    if isinstance(value, (list, tuple, int, float)):  # numbers of Python have no type of their own
        try:
            value = np.asarray(value, np.float64 if spec.quantization else spec.dtype)
        except (ValueError, TypeError, OverflowError) as error:
            raise InputError(f'{model}: "{spec.name}" takes {spec}, got numbers that do not fit: {error}') from error
    array = as_array(value, spec.name, model)
    if spec.quantization is not None and spec.dtype.kind in "iu" and array.dtype.kind == "f":
        array = spec.quantize(array)
    if unchecked:
        spec.check_size(array, model)
    else:
        spec.check(array, model)
    return array

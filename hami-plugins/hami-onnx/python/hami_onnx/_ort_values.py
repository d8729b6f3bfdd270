"""run_with_values: runs a session whose inputs or outputs have types of ml_dtypes, such as bfloat16.

onnxruntime takes and returns such tensors only as OrtValue: over the bits of an array, and by the address of its data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from hami_onnx._specs import TensorSpec

_BITS = {1: np.uint8, 2: np.uint16}


def run_with_values(
    session: onnxruntime.InferenceSession,
    feeds: Mapping[str, Any],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: onnxruntime.RunOptions,
) -> list[Any]:
    """Run a session once; returns one array for each output."""
    types = {spec.name: spec.onnx_type for spec in inputs}
    values = {name: _value(array, types[name]) for name, array in feeds.items()}
    results = session.run_with_ort_values([spec.name for spec in outputs], values, options)
    return [_array(value, spec) for value, spec in zip(results, outputs, strict=True)]


def _value(array: NDArray[Any], onnx_type: int) -> onnxruntime.OrtValue:
    """Return a value over the memory of an array, which must live as long."""
    if not onnx_type:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    bits = array.view(_BITS[array.dtype.itemsize])
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, onnx_type)


def _array(value: onnxruntime.OrtValue, spec: TensorSpec) -> Any:
    if not spec.onnx_type or spec.dtype is None:
        return value.numpy()
    result: NDArray[Any] = np.empty(value.shape(), spec.dtype)
    if result.nbytes:
        if value.device_name() != "cpu":
            raise ValueError(f'output "{spec.name}" is on the device {value.device_name()}, not in CPU memory')
        # Not by ctypes, which is missing where Python was built without libffi.
        bits = result.view(_BITS[result.itemsize])
        memory = {"version": 3, "shape": bits.shape, "typestr": bits.dtype.str, "data": (value.data_ptr(), True)}
        bits[...] = np.asarray(SimpleNamespace(__array_interface__=memory))
    return result

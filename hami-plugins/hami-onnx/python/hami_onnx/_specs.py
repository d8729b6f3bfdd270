"""TensorSpec: the name, type and shape of one input or output of a session."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import hami
import numpy as np

_DTYPES: dict[str, np.dtype[Any]] = {
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
    "float16": np.dtype(np.float16),
    "int8": np.dtype(np.int8),
    "int16": np.dtype(np.int16),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
    "uint8": np.dtype(np.uint8),
    "uint16": np.dtype(np.uint16),
    "uint32": np.dtype(np.uint32),
    "uint64": np.dtype(np.uint64),
    "bool": np.dtype(np.bool_),
    "string": np.dtype(np.object_),
}

# Types that NumPy gets from the package ml_dtypes: its name of the type, and the number in TensorProto.DataType.
_ML_DTYPES = {
    "bfloat16": ("bfloat16", 16),
    "float8e4m3fn": ("float8_e4m3fn", 17),
    "float8e4m3fnuz": ("float8_e4m3fnuz", 18),
    "float8e5m2": ("float8_e5m2", 19),
    "float8e5m2fnuz": ("float8_e5m2fnuz", 20),
    "float8e8m0": ("float8_e8m0fnu", 24),
}
_TYPE = re.compile(r"^(optional\()?(seq\()?tensor\((\w+)\)\)*$")


class TensorSpec(NamedTuple):
    """The name, type and shape of one input or output of a model."""

    name: str
    type: str  # onnxruntime's name of the type, for example "tensor(float)"
    dtype: np.dtype[Any] | None  # of the tensor, or of those of a sequence; None: NumPy has no such type
    shape: tuple[int | None, ...]  # None: a dynamic axis; empty: a scalar, or the model does not state the rank
    axis_names: tuple[str | None, ...]  # the model's names of dynamic axes; None: fixed or unnamed
    is_sequence: bool = False
    is_optional: bool = False  # the model also runs without it
    onnx_type: int = 0  # of a type of ml_dtypes: its number in TensorProto.DataType

    @property
    def is_tensor(self) -> bool:
        return self.dtype is not None and not self.is_sequence

    def __str__(self) -> str:
        if self.dtype is None:
            return self.type
        axes = ", ".join("?" if size is None else str(size) for size in self.shape)
        text = f"{'str' if self.dtype.hasobject else self.dtype} [{axes}]"
        return f"list of {text}" if self.is_sequence else text


class Specs(NamedTuple):
    """The inputs that a request must have, those that it may leave out, and the outputs; in the order of the model."""

    inputs: list[TensorSpec]
    optional: list[TensorSpec]
    outputs: list[TensorSpec]


def specs_of(session: Any, backend: str) -> Specs:
    """Return the inputs and outputs of a session of the package onnxruntime.

    Raises:
        hami.ConfigError: NumPy has no such type, with or without the package ml_dtypes.
    """
    inputs = [_spec(node, backend) for node in session.get_inputs()]
    optional = [spec for spec in inputs if spec.is_optional]
    overridable = [_spec(node, backend)._replace(is_optional=True) for node in session.get_overridable_initializers()]
    outputs = [_spec(node, backend) for node in session.get_outputs()]
    for spec in inputs:
        if spec.dtype is None:
            raise hami.ConfigError(
                f'{backend}: input "{spec.name}" of the model has the type {spec.type}, but inputs must be tensors, '
                "sequences of tensors, or optional ones; change the model to have one tensor input per array"
            )
    return Specs([spec for spec in inputs if not spec.is_optional], [*optional, *overridable], outputs)


def _spec(node: Any, backend: str) -> TensorSpec:
    axes = node.shape or ()
    shape = tuple(size if isinstance(size, int) and size >= 0 else None for size in axes)
    axis_names = tuple(size if isinstance(size, str) else None for size in axes)
    found = _TYPE.match(node.type)
    if not found:
        return TensorSpec(node.name, node.type, None, shape, axis_names)
    optional, sequence, name = found.groups()
    dtype, onnx_type = _dtype(name, node, backend)
    return TensorSpec(node.name, node.type, dtype, shape, axis_names, bool(sequence), bool(optional), onnx_type)


def _dtype(name: str, node: Any, backend: str) -> tuple[np.dtype[Any], int]:
    """Return the dtype and, for a type of ml_dtypes, its number in ONNX."""
    if name in _DTYPES:
        return _DTYPES[name], 0
    if name not in _ML_DTYPES:
        raise hami.ConfigError(
            f'{backend}: "{node.name}" of the model has the type {node.type}, which NumPy does not support; '
            "change it to float32 in the model, with a Cast after the input or before the output"
        )
    attribute, number = _ML_DTYPES[name]
    try:
        import ml_dtypes
    except ModuleNotFoundError as error:
        raise hami.ConfigError(
            f'{backend}: "{node.name}" of the model has the type {node.type}, which NumPy has only with the package '
            "ml_dtypes; run: pip install ml_dtypes"
        ) from error
    return np.dtype(getattr(ml_dtypes, attribute)), number

"""Model: an onnxruntime session with the types and shapes of its inputs and outputs and its batch axis."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import hami
import numpy as np
import onnxruntime
from numpy.typing import NDArray

_DTYPES: dict[str, np.dtype[Any]] = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(double)": np.dtype(np.float64),
    "tensor(float16)": np.dtype(np.float16),
    "tensor(int8)": np.dtype(np.int8),
    "tensor(int16)": np.dtype(np.int16),
    "tensor(int32)": np.dtype(np.int32),
    "tensor(int64)": np.dtype(np.int64),
    "tensor(uint8)": np.dtype(np.uint8),
    "tensor(uint16)": np.dtype(np.uint16),
    "tensor(uint32)": np.dtype(np.uint32),
    "tensor(uint64)": np.dtype(np.uint64),
    "tensor(bool)": np.dtype(np.bool_),
    "tensor(string)": np.dtype(np.object_),
}

_RUN_OPTIONS = onnxruntime.RunOptions()
_RUN_OPTIONS.log_severity_level = 4  # the failed requests carry the error of a run; do not log it to stderr too


class TensorSpec(NamedTuple):
    """The name, type and shape of one input or output of a model."""

    name: str
    type: str  # onnxruntime's name of the type, for example "tensor(float)"
    dtype: np.dtype[Any] | None  # None: NumPy has no such type, or it is not a tensor
    shape: tuple[int | None, ...]  # None: a dynamic axis
    axis_names: tuple[str | None, ...]  # the model's names of dynamic axes; None: fixed or unnamed

    def __str__(self) -> str:
        if self.dtype is None:
            return self.type
        axes = ", ".join("?" if size is None else str(size) for size in self.shape)
        return f"{'str' if self.dtype.hasobject else self.dtype} [{axes}]"


class Model:
    """Runs a session on arrays.

    Attributes:
        inputs, outputs: what the session takes and returns, in its order.
        has_batch_axis: whether axis 0 of all inputs and outputs is a batch.
        fixed_rows: the size of the batch axis; None if it is dynamic, and for a model without a batch axis.
    """

    def __init__(self, session: onnxruntime.InferenceSession, batched: bool | None, backend: str) -> None:
        self._session = session
        self.inputs = [_spec(node) for node in session.get_inputs()]
        self.outputs = [_spec(node) for node in session.get_outputs()]
        _check_types(self.inputs, self.outputs, backend)
        self.has_batch_axis = _has_batch_axis(self.inputs, self.outputs, batched, backend)
        self.fixed_rows: int | None = self.inputs[0].shape[0] if self.has_batch_axis else None
        self._output_names = [spec.name for spec in self.outputs]

    def announced_inputs(self) -> list[dict[str, Any]] | None:
        """Return the option `engine_inputs`, by which FixTensor makes data fit; None if an input is not of numbers."""
        if any(spec.dtype is None or spec.dtype.hasobject for spec in self.inputs):
            return None
        return [
            {
                "name": spec.name,
                "dtype": spec.dtype.name if spec.dtype is not None else None,
                "shape": [-1 if size is None else size for size in spec.shape] or None,  # or the rank is unknown
                "device": "cpu",
                "batch_axis": self.has_batch_axis,
            }
            for spec in self.inputs
        ]

    def run(self, arrays: Sequence[NDArray[Any]]) -> list[Any]:
        """Run the model once on `arrays`, in the order of `inputs`. Returns the outputs in the order of `outputs`."""
        feeds = {spec.name: array for spec, array in zip(self.inputs, arrays, strict=True)}
        try:
            return list(self._session.run(self._output_names, feeds, _RUN_OPTIONS))
        except Exception as error:  # onnxruntime's exceptions have no common base class but Exception
            given = ", ".join(f"{name} {array.dtype} {list(array.shape)}" for name, array in feeds.items())
            raise hami.RequestError(f"the model failed on {given}: {str(error).strip()}") from error


def _spec(node: Any) -> TensorSpec:
    axes = tuple(node.shape or ())
    shape = tuple(size if isinstance(size, int) and size >= 0 else None for size in axes)
    axis_names = tuple(size if isinstance(size, str) else None for size in axes)
    return TensorSpec(node.name, node.type, _DTYPES.get(node.type), shape, axis_names)


def _check_types(inputs: list[TensorSpec], outputs: list[TensorSpec], backend: str) -> None:
    """Reject types that onnxruntime cannot exchange with NumPy, such as bfloat16: every run would fail."""
    for spec in (*inputs, *outputs):
        if spec.dtype is None and spec.type.startswith("tensor("):
            raise hami.ConfigError(
                f'{backend}: "{spec.name}" of the model has the type {spec.type}, which NumPy does not support; '
                "change it to float32 in the model, with a Cast after the input or before the output"
            )
    for spec in inputs:
        if spec.type.startswith(("seq(", "map(")):
            raise hami.ConfigError(
                f'{backend}: input "{spec.name}" of the model has the type {spec.type}, but inputs must be tensors; '
                "change the model to have one tensor input per array"
            )


def _has_batch_axis(inputs: list[TensorSpec], outputs: list[TensorSpec], batched: bool | None, backend: str) -> bool:
    """Return whether axis 0 is a batch: all inputs and outputs have it, with one size or, if it is dynamic, one name.

    Axes with different names may be unrelated: an output of detected boxes, for example, has no rows per request.
    """
    if batched is False:
        return False
    specs = [*inputs, *outputs]
    sizes = {spec.shape[0] if spec.shape else 0 for spec in specs if spec.dtype is not None}
    if not inputs or any(spec.dtype is None for spec in specs) or len(sizes) != 1 or 0 in sizes:
        if batched:
            shown = ", ".join(f"{spec.name} {spec}" for spec in specs)
            raise hami.ConfigError(
                f"{backend}: batched = true needs the same axis 0 in all inputs and outputs, got {shown}"
            )
        return False
    return sizes != {None} or batched is True or _shares_batch_axis_name(specs)


def _shares_batch_axis_name(specs: list[TensorSpec]) -> bool:
    """Return whether axis 0 has the same name everywhere and no other axis depends on it.

    If another axis depends on the batch axis, a request would see data of the other requests in its batch.
    """
    names = {spec.axis_names[0] for spec in specs}
    others = [name for spec in specs for name in spec.axis_names[1:] if name]
    terms = re.findall(r"\w+", " ".join(others))  # an axis name can be an expression such as "2*batch"
    return len(names) == 1 and None not in names and names.isdisjoint([*others, *terms])

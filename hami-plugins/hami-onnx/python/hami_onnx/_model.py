"""A session with what its inputs and outputs say: types, shapes, and whether axis 0 is a batch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import hami
import numpy as np
import onnxruntime

_DTYPES = {
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

_TOLD = onnxruntime.RunOptions()
_TOLD.log_severity_level = 4  # an error of a run is told to those whose requests it fails, not to stderr as well


class Port(NamedTuple):
    """An input or output: its dtype (None: not a tensor of a type NumPy has), its shape with None for a free axis."""

    name: str
    type: str  # as onnxruntime has it
    dtype: np.dtype[Any] | None
    shape: tuple[int | None, ...]
    axes: tuple[str | None, ...]  # what the model calls them, where they are free and have a name

    def __str__(self) -> str:
        if self.dtype is None:
            return self.type
        axes = ", ".join("?" if size is None else str(size) for size in self.shape)
        return f"{'str' if self.dtype.hasobject else self.dtype} [{axes}]"


class Model:
    """Runs a session on arrays. `rows`: None if axis 0 is a batch of any size, N if of N, 0 if it is no batch."""

    def __init__(self, session: onnxruntime.InferenceSession, batched: bool | None, owner: str) -> None:
        self._session = session
        self.inputs = [_port(node) for node in session.get_inputs()]
        self.outputs = [_port(node) for node in session.get_outputs()]
        _check_types(self.inputs, self.outputs, owner)
        self.rows = _rows(self.inputs, self.outputs, batched, owner)
        self._output_names = [port.name for port in self.outputs]

    def run(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        """Run once; `arrays` in the order of `inputs`, the outputs in that of `outputs`."""
        feeds = {port.name: array for port, array in zip(self.inputs, arrays, strict=True)}
        try:
            return list(self._session.run(self._output_names, feeds, _TOLD))
        except Exception as error:  # onnxruntime's exceptions have no common base but Exception
            given = ", ".join(f"{name} {array.dtype} {list(array.shape)}" for name, array in feeds.items())
            raise hami.RequestError(f"the model failed on {given}: {str(error).strip()}") from error


def _port(node: Any) -> Port:
    axes = tuple(node.shape or ())
    shape = tuple(size if isinstance(size, int) and size >= 0 else None for size in axes)
    names = tuple(size if isinstance(size, str) else None for size in axes)
    return Port(node.name, node.type, _DTYPES.get(node.type), shape, names)


def _check_types(inputs: list[Port], outputs: list[Port], owner: str) -> None:
    """Refuse what no run could ever be given or give: onnxruntime hands no bfloat16 from or to NumPy, nor int4."""
    for port in (*inputs, *outputs):
        if port.dtype is None and port.type.startswith("tensor("):
            raise hami.ConfigError(
                f'{owner}: "{port.name}" of the model is {port.type}, which NumPy does not have; '
                "give the model float32 there, with a Cast behind its inputs or before its outputs"
            )
    for port in inputs:
        if port.type.startswith(("seq(", "map(")):
            raise hami.ConfigError(
                f'{owner}: input "{port.name}" of the model is {port.type}, and only arrays are taken; '
                "give the model an input for each array"
            )


def _rows(inputs: list[Port], outputs: list[Port], batched: bool | None, owner: str) -> int | None:
    """Find out whether axis 0 is a batch: all must have it, with one size or, if it is free, one name.

    A free axis 0 of another name may hold anything, found boxes for example: whose is which could not be told.
    """
    if batched is False:
        return 0
    ports = [*inputs, *outputs]
    sizes = {port.shape[0] if port.shape else 0 for port in ports if port.dtype is not None}
    if not inputs or any(port.dtype is None for port in ports) or len(sizes) != 1 or 0 in sizes:
        if batched:
            shown = ", ".join(f"{port.name} {port}" for port in ports)
            raise hami.ConfigError(f"{owner}: batched = true, but not all have the same axis 0: {shown}")
        return 0
    (size,) = sizes
    return size if size or batched or _is_one_axis(ports) else 0


def _is_one_axis(ports: list[Port]) -> bool:
    """Tell whether axis 0 has one name in all, and no other axis depends on it: each request would see the others."""
    names = {port.axes[0] for port in ports}
    others = [axis for port in ports for axis in port.axes[1:] if axis]
    terms = re.findall(r"\w+", " ".join(others))  # an axis may be called "2*batch"
    return len(names) == 1 and None not in names and names.isdisjoint([*others, *terms])

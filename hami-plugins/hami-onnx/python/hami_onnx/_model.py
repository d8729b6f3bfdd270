"""Model: a session with the types and shapes of its inputs and outputs, and what joins its requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import hami
from hami_model_check.joining import Joining
from hami_model_check.row_watch import RowWatch
from hami_tensor.model_keys import ModelKeys
from hami_tensor.values import Cast

from hami_onnx._rows import Rows
from hami_onnx._specs import Specs

Run = Callable[[dict[str, Any]], list[Any]]

_FAILED = "the model failed on "  # a run of the native library says it itself


class Model:
    """Runs a session on arrays.

    Args:
        session: the object that runs the model. Backends that share it share what a watch finds about it.
        specs: its inputs and outputs.
        run: runs it once on values by name.

    Attributes:
        inputs, outputs: what the session takes and returns, in its order.
        optional: the inputs that a request may leave out: optional types, and initializers that are also inputs.
        rows: the axes of the rows, and whether requests may be joined along them.
        joining: how that is known.
        cast: which conversions of inputs are allowed.
        keys: where the inputs are in a request.
        watch: compares a row of some joined batches with the row alone; None: nothing is joined, or nothing is unknown.
    """

    def __init__(self, session: object, specs: Specs, run: Run) -> None:
        self.session = session
        self.inputs, self.optional, self.outputs = specs
        self.rows = Rows.none(self.inputs, self.outputs)
        self.joining = Joining(False, "none", "unknown")
        self.watch: RowWatch | None = None
        self.cast: Cast = "exact"
        self.keys = ModelKeys("OnnxTensor", [spec.name for spec in self.inputs])
        self._run = run

    def announced_inputs(self) -> list[dict[str, Any]] | None:
        """Return the option `engine_inputs`, by which FixTensor makes data fit; None if an input is not of numbers."""
        if any(spec.dtype is None or spec.dtype.hasobject or spec.onnx_type for spec in self.inputs):
            return None
        return [
            {
                "name": spec.name,
                "dtype": spec.dtype.name if spec.dtype is not None else None,
                "shape": [-1 if size is None else size for size in spec.shape] or None,  # or the rank is unknown
                "device": "cpu",
                "batch_axis": axis == 0,
            }
            for spec, axis in zip(self.inputs, self.rows.lone_axes, strict=True)
        ]

    def run(self, arrays: Sequence[Any], extra: dict[str, Any] | None = None) -> list[Any]:
        """Run the model once. Returns the outputs in the order of `outputs`.

        Args:
            arrays: in the order of `inputs`.
            extra: values of `optional` inputs by name.
        """
        feeds = {spec.name: array for spec, array in zip(self.inputs, arrays, strict=True)}
        if extra:
            feeds |= extra
        try:
            return self._run(feeds)
        except Exception as error:  # onnxruntime's exceptions have no common base class but Exception
            text = str(error).strip()
            if text.startswith(_FAILED):
                raise
            given = ", ".join(f"{name} {_shown(value)}" for name, value in feeds.items())
            raise hami.RequestError(f"{_FAILED}{given}: {text}") from error


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"list of {len(value)}"
    return f"{value.dtype} {list(value.shape)}" if value is not None else "None"

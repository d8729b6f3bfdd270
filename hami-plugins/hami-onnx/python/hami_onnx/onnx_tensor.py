"""OnnxTensor: an ONNX model as a backend; opens it, gathers requests along axis 0, runs, gives each its rows."""

from __future__ import annotations

from typing import Any

from hami_onnx._batch import run_batch
from hami_onnx._model import Model
from hami_onnx._parameters import OpensModel


class OnnxTensor(OpensModel):
    """Run an ONNX model. `data`: an array, or a dict by input name; `result`: an array, or a dict by output name.

    If axis 0 of all inputs and outputs is free and has one name (or `batched` says that it is a batch), requests of
    equal shapes run together, each with the rows it brought (`request_size`, 1 if absent); data without that axis is
    one row and gets a result without it. A model whose axis 0 is N takes exactly N rows; one without a batch axis runs
    request by request.
    """

    _model: Model | None = None

    def init(self, options: Any) -> None:
        self._model = self.open()

    def min(self) -> int | None:
        return self._range()

    def max(self) -> int | None:
        return self._range()

    def forward(self, batch: list[Any]) -> None:
        assert self._model is not None, "forward after close"
        run_batch(batch, self._model, "OnnxTensor")

    def close(self) -> None:
        self._model = None

    def _range(self) -> int | None:
        """Exactly N rows, 1 where there is no batch axis, None (the node decides) where it is free."""
        if self._model is None or self._model.rows is None:
            return None
        return self._model.rows or 1

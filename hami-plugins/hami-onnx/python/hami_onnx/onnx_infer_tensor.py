"""OnnxInferTensor: runs the model that LoadOnnx opened, on data that is one batch already."""

from __future__ import annotations

from typing import Any

import hami

from hami_onnx._batch import run_batch
from hami_onnx._model import Model


class OnnxInferTensor(hami.Backend):
    """Run the model in the instance's options on each request by itself; what gathers and scatters is around it.

    The range is the model's: N if its batch axis is fixed, else from 1 on.
    """

    thread = "concurrent"

    def init(self, options: Any) -> None:
        model = options.get("onnx_model", None)
        if not isinstance(model, Model):
            raise hami.ConfigError(
                "OnnxInferTensor: no model was opened before it; put LoadOnnx first, "
                "as in IoC[LoadOnnx, OnnxInferTensor; OnnxInferTensor], or use OnnxTensor"
            )
        self._model: Model | None = model

    def min(self) -> int | None:
        return self._model.rows or None if self._model else None

    def max(self) -> int | None:
        return self._model.rows or None if self._model else None

    def forward(self, batch: list[Any]) -> None:
        assert self._model is not None, "forward after close"
        for item in batch:
            run_batch([item], self._model, "OnnxInferTensor")

    def close(self) -> None:
        self._model = None

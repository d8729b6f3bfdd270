"""OnnxInferTensor: runs the model that LoadOnnx opened, on one request at a time."""

from __future__ import annotations

from typing import Any

import hami

from hami_onnx._batch import run_batch
from hami_onnx._model import Model


class OnnxInferTensor(hami.Backend):
    """Run the model of LoadOnnx on each request separately, for pipelines that form batches themselves.

    data: one array, a dict of arrays by input name, or a list of arrays in the order of the inputs
    without `data`, each input is the key of its name
    result: one array, or a dict of arrays by output name if the model has several outputs, which are also keys

    A model with a fixed batch size N takes requests of 1 to N rows: fewer are padded, if rows are independent.
    """

    thread = "concurrent"
    lightweight = True

    _model: Model | None = None

    def init(self, options: Any) -> None:
        model = options.get("onnx_model", None)
        if not isinstance(model, Model):
            raise hami.ConfigError(
                "OnnxInferTensor: no model is open; put LoadOnnx before it, "
                "as in IoC[LoadOnnx, OnnxInferTensor; OnnxInferTensor], or use OnnxTensor"
            )
        model.keys.owner = "OnnxInferTensor"
        self._model = model

    def max(self) -> int | None:
        return self._model.rows.fixed if self._model else None

    def forward(self, batch: list[Any]) -> None:
        assert self._model is not None, "forward after close"
        for item in batch:
            run_batch([item], self._model, "OnnxInferTensor", self.count)

    def close(self) -> None:
        self._model = None

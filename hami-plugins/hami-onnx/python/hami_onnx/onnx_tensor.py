"""OnnxTensor: opens an ONNX model and runs batches of requests."""

from __future__ import annotations

from typing import Any

from hami_onnx._batch import run_batch
from hami_onnx._model import Model
from hami_onnx._model_backend import OnnxModelBackend


class OnnxTensor(OnnxModelBackend):
    """Run an ONNX model on batches of requests.

    data: one array, a dict of arrays by input name, or a list of arrays in the order of the inputs
    result: one array, or a dict of arrays by output name if the model has several outputs
    request_size: key of the request, the number of rows in `data`; by default found from its shape

    Requests with equal shapes run together if the graph proves, or a test at the start shows, that rows are
    independent; every other model runs request by request. `batched` and `batch_axes` say otherwise. Data without the
    batch axis is one row, and its result has no batch axis. A model with a fixed batch size N runs in blocks of N rows,
    and a short block is padded with copies of a row; with a dynamic one, the node learns the batch size.
    """

    _model: Model | None = None
    _has_remarked = False

    def init(self, options: Any) -> None:
        self._model = self.open_model(options)
        options["engine_inputs"] = self._model.announced_inputs()

    def max(self) -> int | str | None:
        if self._model is None:
            return None
        return (self._model.rows.fixed or "auto") if self._model.rows.joins else 1

    def forward(self, batch: list[Any]) -> None:
        assert self._model is not None, "forward after close"
        self.count("groups", run_batch(batch, self._model, "OnnxTensor", self.count))
        watch = self._model.watch
        if watch is not None and watch.difference is not None and not self._has_remarked:
            self._has_remarked = True
            self.remark(f"OnnxTensor: {watch.finding}")

    def close(self) -> None:
        self._model = None

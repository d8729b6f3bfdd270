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

    Requests with equal shapes run together if axis 0 of all inputs and outputs is a batch: it is dynamic and has one
    name everywhere, or `batched` is true. Data without the batch axis is one row, and its result has no batch axis. A
    model with a fixed batch size N takes exactly N rows; with a dynamic one, the node learns how many rows pay. A model
    without a batch axis runs request by request.
    """

    _model: Model | None = None

    def init(self, options: Any) -> None:
        self._model = self.open_model(options)
        options["engine_inputs"] = self._model.announced_inputs()

    def min(self) -> int | None:
        return self._rows_per_run()

    def max(self) -> int | str:
        return self._rows_per_run() or "auto"

    def forward(self, batch: list[Any]) -> None:
        assert self._model is not None, "forward after close"
        self.count("groups", run_batch(batch, self._model, "OnnxTensor"))

    def close(self) -> None:
        self._model = None

    def _rows_per_run(self) -> int | None:
        """Return the fixed batch size, 1 without a batch axis, or None if the axis is dynamic."""
        if self._model is None:
            return None
        return self._model.fixed_rows if self._model.has_batch_axis else 1

"""LoadOnnx: opens a model for an OnnxInferTensor in the same instance."""

from __future__ import annotations

from typing import Any

from hami_onnx._model_backend import OnnxModelBackend


class LoadOnnx(OnnxModelBackend):
    """Open an ONNX model and store it in the options of the instance as `onnx_model`, where OnnxInferTensor finds it.

    data: any value
    result: `data`, unchanged

    Example: IoC[LoadOnnx, OnnxInferTensor; S[DecodeMat, Mat2Tensor, OnnxInferTensor]]
    """

    def init(self, options: Any) -> None:
        model = self.open_model(options, "LoadOnnx")
        options["onnx_model"] = model
        options["engine_inputs"] = model.announced_inputs()

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = item["data"]

"""LoadOnnx: opens a model for an OnnxInferTensor of the same instance."""

from __future__ import annotations

from typing import Any

from hami_onnx._parameters import OpensModel


class LoadOnnx(OpensModel):
    """Open an ONNX model and leave it in the instance's options under `onnx_model`; requests pass unchanged.

    IoC[LoadOnnx, OnnxInferTensor; S[DecodeMat, Mat2Tensor, OnnxInferTensor]]
    """

    def init(self, options: Any) -> None:
        options["onnx_model"] = self.open()

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = item["data"]

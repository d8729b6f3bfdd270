"""Names the backends of this package; each is imported, torch and TensorRT with it, when a pipeline uses it."""

from __future__ import annotations

from typing import Any

import pluggy

hookimpl = pluggy.HookimplMarker("hami")


@hookimpl
def hami_register(registry: Any) -> None:
    registry.add("LoadTensorrtEngine", "hami_trt.load_tensorrt_engine:LoadTensorrtEngine")
    registry.add("Onnx2Tensorrt", "hami_trt.onnx2tensorrt:Onnx2Tensorrt")
    registry.add("TensorrtInferTensor", "hami_trt.tensorrt_infer_tensor:TensorrtInferTensor")
    registry.add("TensorrtTensor", "hami_trt.tensorrt_tensor:TensorrtTensor")


@hookimpl
def hami_commands(subparsers: Any) -> None:
    from hami_trt._compile import add_command

    add_command(subparsers)

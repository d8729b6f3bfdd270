"""Names the backends of this package; each is imported, and onnxruntime with it, only when a pipeline uses it."""

from __future__ import annotations

from typing import Any

import pluggy

hookimpl = pluggy.HookimplMarker("hami")


@hookimpl
def hami_register(registry: Any) -> None:
    registry.add("LoadOnnx", "hami_onnx.load_onnx:LoadOnnx")
    registry.add("OnnxInferTensor", "hami_onnx.onnx_infer_tensor:OnnxInferTensor")
    registry.add("OnnxTensor", "hami_onnx.onnx_tensor:OnnxTensor")


@hookimpl
def hami_report() -> dict[str, str]:
    import onnxruntime

    from hami_onnx._providers import available
    from hami_onnx._threads import usable_cores

    return {
        "onnxruntime": onnxruntime.__version__,
        "onnxruntime providers": ", ".join(available()),
        "onnxruntime threads": f"{usable_cores()} (what this process may use; parameter `threads` changes it)",
    }

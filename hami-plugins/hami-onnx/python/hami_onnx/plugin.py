"""Registers the native library with the path of ONNX Runtime's, and the backends in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pluggy

from hami_onnx._runtime import find_library, version

hookimpl = pluggy.HookimplMarker("hami")


@hookimpl
def hami_register(registry: Any) -> None:
    registry.add("LoadOnnx", "hami_onnx.load_onnx:LoadOnnx")
    registry.add("OnnxInferTensor", "hami_onnx.onnx_infer_tensor:OnnxInferTensor")
    registry.add("OnnxModel", "hami_onnx.onnx_model:OnnxModel")
    registry.add_library(Path(__file__).with_name("onnx_tensor.so"), {"onnxruntime": str(find_library())})


@hookimpl
def hami_commands(subparsers: Any) -> None:
    from hami_onnx.quantize import add_quantize

    add_quantize(subparsers)


@hookimpl
def hami_open_model(path: str) -> dict[str, Any]:
    return {"backend": "OnnxTensor", "model": path}


@hookimpl
def hami_show_file(path: str) -> dict[str, Any] | None:
    if not path.endswith((".onnx", ".ort")):
        return None
    from hami_onnx.show import show_model

    return show_model(path)


@hookimpl
def hami_show_providers(path: str) -> dict[str, str] | None:
    if not path.endswith((".onnx", ".ort")):
        return None
    from hami_onnx.show import operators_by_provider

    return operators_by_provider(path)


@hookimpl
def hami_model_layers(path: str) -> dict[str, Any] | None:
    if not path.endswith(".onnx"):
        return None
    from hami_onnx.layers import model_layers

    return model_layers(path)


@hookimpl
def hami_signature(backend: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if backend != "OnnxTensor" or not str(params.get("model")).endswith(".onnx"):
        return None
    from hami_onnx.show import signature_of

    return signature_of(params)


@hookimpl
def hami_findings(backend: str, params: dict[str, Any]) -> list[str]:
    if backend not in ("LoadOnnx", "OnnxTensor"):
        return []
    from hami_onnx.show import findings_of

    return findings_of(params)


@hookimpl
def hami_invariance(backend: str, params: dict[str, Any]) -> list[str]:
    if backend != "OnnxTensor":
        return []
    from hami_model_check.invariance import invariance_lines

    own = {name: value for name, value in params.items() if value != str(find_library())}  # the default is allowed
    return invariance_lines("hami-onnx::OnnxTensor", own, hami_signature(backend, params))


@hookimpl
def hami_report() -> dict[str, str]:
    from hami_onnx._cores import usable_cores
    from hami_onnx._providers import available_providers

    return {
        "onnxruntime": version(),
        "onnxruntime library": str(find_library()),
        "onnxruntime providers": ", ".join(available_providers()),
        "onnxruntime threads": f"{usable_cores()} (cores that this process may use; parameter `threads` overrides it)",
    }


@hookimpl
def hami_devices() -> dict[str, str]:
    from hami_onnx._providers import plugin_devices

    return plugin_devices()

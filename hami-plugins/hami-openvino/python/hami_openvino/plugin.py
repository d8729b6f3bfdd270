"""Registers the native library with the core, together with the path of the installed OpenVINO library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pluggy

from hami_openvino._openvino import find_library, version

hookimpl = pluggy.HookimplMarker("hami")


@hookimpl
def hami_register(registry: Any) -> None:
    from hami_openvino._check import CheckModel  # imports modules that only a loaded plugin needs

    library = Path(__file__).with_name("openvino_tensor.so")
    registry.add_library(library, {"library": str(find_library())}, check=CheckModel)


@hookimpl
def hami_unknown_key(key: str) -> str | None:
    if key != "batch_invariant":
        return None
    return "only OnnxTensor has batch_invariant; with other engines set batched = false, and each request runs alone"


@hookimpl
def hami_open_model(path: str) -> dict[str, Any]:
    return {"backend": "OpenvinoTensor", "model": path}


@hookimpl
def hami_show_file(path: str) -> dict[str, Any] | None:
    if not path.endswith((".onnx", ".xml")):
        return None
    from hami_openvino.show import show_ir, show_model

    return show_ir(path) if path.endswith(".xml") else show_model(path)


@hookimpl
def hami_signature(backend: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if backend != "OpenvinoTensor" or not str(params.get("model")).endswith((".onnx", ".xml")):
        return None
    if str(params["model"]).endswith(".xml"):
        from hami_openvino._ir import ir_signature

        return ir_signature(params["model"])
    from hami_model_check.signature import onnx_signature

    return onnx_signature(params["model"])


@hookimpl
def hami_findings(backend: str, params: dict[str, Any]) -> list[str]:
    if backend != "OpenvinoTensor":
        return []
    from hami_openvino.show import findings_of

    return findings_of(params)


@hookimpl
def hami_invariance(backend: str, params: dict[str, Any]) -> list[str]:
    if backend != "OpenvinoTensor":
        return []
    from hami_model_check.invariance import invariance_lines

    own = {name: value for name, value in params.items() if value != str(find_library())}  # the default is allowed
    return invariance_lines("hami-openvino::OpenvinoTensor", own, hami_signature(backend, params))


@hookimpl
def hami_report() -> dict[str, str]:
    return {
        "openvino": version() or "unknown version",
        "openvino library": str(find_library()),
        "openvino precision": "float32 for float32 models (parameter `precision` overrides it)",
    }

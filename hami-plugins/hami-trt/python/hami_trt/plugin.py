"""Registers the backends of this package. Each is imported, with TensorRT, when a pipeline uses it."""

from __future__ import annotations

from typing import Any

import pluggy

hookimpl = pluggy.HookimplMarker("hami")

TENSORRT_TENSOR = (
    "IoC[ModelLoader[(.onnx)Onnx2Tensorrt,(.trt,.engine,.plan)LoadTensorrtEngine],TensorrtInferTensor;"
    "CatSplit["
    "S[FixTensor(exact=true),CatTensor],"
    "S[ContiguousTensor,TensorrtInferTensor,Reflect[post_processor]],"
    "SplitTensor]]"
)


@hookimpl
def hami_register(registry: Any) -> None:
    registry.add("LoadTensorrtEngine", "hami_trt._backends:LoadTensorrtEngine")
    registry.add("Onnx2Tensorrt", "hami_trt._backends:Onnx2Tensorrt")
    registry.add("TensorrtInferTensor", "hami_trt._backends:TensorrtInferTensor")
    registry.generate("TensorrtTensor", TENSORRT_TENSOR)


@hookimpl
def hami_unknown_key(key: str) -> str | None:
    if key != "batch_invariant":
        return None
    return "only OnnxTensor has batch_invariant; with other engines set batched = false, and each request runs alone"


@hookimpl
def hami_open_model(path: str) -> dict[str, Any]:
    return {"backend": "TensorrtTensor", "model": path}


@hookimpl
def hami_show_file(path: str) -> dict[str, Any] | None:
    if not path.endswith((".trt", ".engine", ".plan")):
        return None
    from hami_trt.show import show_engine

    return show_engine(path)


@hookimpl
def hami_findings(backend: str, params: dict[str, Any]) -> list[str]:
    if backend not in ("LoadTensorrtEngine", "Onnx2Tensorrt"):
        return []
    from hami_trt.show import findings_of

    return findings_of(backend, params)


@hookimpl
def hami_report() -> dict[str, str]:
    from hami_trt._tensorrt import LIBRARIES, describe_library

    return {**{name: describe_library(name) for name in LIBRARIES}, "GPUs": _describe_gpus()}


def _describe_gpus() -> str:
    from hami_trt._gpu import all_gpus

    return ", ".join(map(str, all_gpus())) or "none that the NVIDIA driver sees"


@hookimpl
def hami_commands(subparsers: Any) -> None:
    from hami_trt._compile import add_command

    add_command(subparsers)

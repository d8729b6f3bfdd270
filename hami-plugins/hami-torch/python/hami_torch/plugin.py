"""Register the backends of this package; a backend, and torch with it, is imported only when a pipeline uses it."""

from __future__ import annotations

from typing import Any

import pluggy

hookimpl = pluggy.HookimplMarker("hami")


@hookimpl
def hami_register(registry: Any) -> None:
    registry.add("CpuTensor", "hami_torch.cpu_tensor:CpuTensor")
    registry.add("GpuTensor", "hami_torch.gpu_tensor:GpuTensor")
    registry.add("StreamGuard", "hami_torch.stream_guard:StreamGuard")
    registry.add("StreamPool", "hami_torch.stream_pool:StreamPool")
    registry.add("SyncTensor", "hami_torch.sync_tensor:SyncTensor")
    registry.add("TorchModel", "hami_torch.torch_model:TorchModel")


@hookimpl
def hami_unknown_key(key: str) -> str | None:
    if key != "batch_invariant":
        return None
    return "only OnnxTensor has batch_invariant; with other engines set batched = false, and each request runs alone"


@hookimpl
def hami_open_model(path: str) -> dict[str, Any]:
    device = {} if _has_gpu() else {"device": "cpu"}
    return {"backend": "TorchModel", "model": path, **device}


def _has_gpu() -> bool:
    """Whether torch uses the default device `cuda` here; without torch, the backend reports that it is missing."""
    try:
        from hami_torch._device import cuda_devices
    except ImportError:
        return True
    return bool(cuda_devices())


@hookimpl
def hami_signature(backend: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if backend != "TorchModel" or not str(params.get("model")).endswith(".pt2"):
        return None
    from hami_torch._signature import exported_signature

    return exported_signature(params["model"])


@hookimpl
def hami_show_file(path: str) -> dict[str, Any] | None:
    if not path.endswith((".pt2", ".pt", ".torchscript")):
        return None
    from hami_torch.show import show_program

    return show_program(path)


@hookimpl
def hami_findings(backend: str, params: dict[str, Any]) -> list[str]:
    if backend != "TorchModel":
        return []
    from hami_torch.show import findings_of

    return findings_of(params)


@hookimpl
def hami_report() -> dict[str, str]:
    try:
        from hami_torch._torch import torch
    except ImportError as error:
        return {"torch": str(error)}
    from hami_torch._device import cuda_devices

    return {"torch": torch.__version__, "torch devices": ", ".join(["cpu", *cuda_devices()])}

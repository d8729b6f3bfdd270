"""Register the backends of this package; a backend, and torch with it, is imported only when a pipeline uses it."""

from __future__ import annotations

from typing import Any

import pluggy

hookimpl = pluggy.HookimplMarker("hami")


@hookimpl
def hami_register(registry: Any) -> None:
    registry.add("ArgMaxTensor", "hami_torch.score_tensors:ArgMaxTensor", device="cuda")
    registry.add("CatTensor", "hami_torch.cat_tensor:CatTensor", device="cuda")
    registry.add("ContiguousTensor", "hami_torch.contiguous_tensor:ContiguousTensor", device="cuda")
    registry.add("CpuTensor", "hami_torch.cpu_tensor:CpuTensor")
    registry.add("CropTensor", "hami_torch.crop_tensor:CropTensor")
    registry.add("CvtColorTensor", "hami_torch.cvt_color_tensor:CvtColorTensor")
    registry.add("DecodeTensor", "hami_torch.decode_tensor:DecodeTensor")
    registry.add("FixTensor", "hami_torch.fix_tensor:FixTensor", device="cuda")
    registry.add("GpuTensor", "hami_torch.gpu_tensor:GpuTensor")
    registry.add("NormalizeTensor", "hami_torch.normalize_tensor:NormalizeTensor")
    registry.add("ResizeTensor", "hami_torch.resize_tensor:ResizeTensor")
    registry.add("SoftmaxTensor", "hami_torch.score_tensors:SoftmaxTensor", device="cuda")
    registry.add("SplitTensor", "hami_torch.split_tensor:SplitTensor", device="cuda")
    registry.add("StreamGuard", "hami_torch.stream_guard:StreamGuard")
    registry.add("StreamPool", "hami_torch.stream_pool:StreamPool")
    registry.add("SyncTensor", "hami_torch.sync_tensor:SyncTensor")
    registry.add("TopKTensor", "hami_torch.score_tensors:TopKTensor", device="cuda")
    registry.add("TorchModel", "hami_torch.torch_model:TorchModel")


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
    from hami_torch._nvjpeg_library import find_library

    library = find_library()
    absent = "not found: DecodeTensor decodes on the CPU; to use the GPU, install torchvision for CUDA or nvidia-nvjpeg"
    return {
        "torch": torch.__version__,
        "torch devices": ", ".join(["cpu", *cuda_devices()]),
        "nvJPEG": f"{library.version} ({library.path})" if library else absent,
    }

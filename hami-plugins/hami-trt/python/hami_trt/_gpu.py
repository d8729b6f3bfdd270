"""The GPU that an engine is built for and runs on."""

from __future__ import annotations

import hami
from hami_torch.backend import device_of, torch

from hami_trt._recipe import Gpu
from hami_trt._tensorrt import LIBRARIES, Library


def find_device(library: Library, name: str, owner: str) -> torch.device:
    """Return the device that parameter `device` of the backend `owner` names.

    Raises:
        hami.ConfigError: the device does not exist, or the library does not run on it.
    """
    device = device_of(name, owner, library.device_types)
    supported, gpu = library.compute_capabilities(), gpu_of(device)
    if supported and gpu is not None and gpu.compute_capability not in supported:
        raise hami.ConfigError(
            f"{owner}: {library} does not run on {gpu}; it runs on compute capability {', '.join(supported)}; "
            f"use TensorRT on this GPU: {LIBRARIES['tensorrt'].command}"
        )
    return device


def gpu_of(device: torch.device) -> Gpu | None:
    """Return name and compute capability of a CUDA device; None for another device."""
    if device.type != "cuda":
        return None
    major, minor = torch.cuda.get_device_capability(device)
    return Gpu(torch.cuda.get_device_name(device), f"{major}.{minor}")


def all_gpus() -> list[Gpu]:
    """Return the GPUs that this process sees."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    gpus = (gpu_of(torch.device("cuda", index)) for index in range(count))
    return [gpu for gpu in gpus if gpu is not None]

"""The GPU that an engine is built for and runs on."""

from __future__ import annotations

import hami
from hami_cuda.device import compute_capability, devices, gpu_name
from hami_cuda.device import find_device as find_cuda_device
from hami_tensor import Device

from hami_trt._recipe import Gpu
from hami_trt._tensorrt import LIBRARIES, Library


def find_device(library: Library, name: str, owner: str) -> Device:
    """Return the device that parameter `device` of the backend `owner` names.

    Raises:
        hami.ConfigError: the device does not exist, or the library does not run on it.
    """
    device = find_cuda_device(name, owner)
    supported, gpu = library.compute_capabilities(), gpu_of(device)
    if supported and gpu.compute_capability not in supported:
        raise hami.ConfigError(
            f"{owner}: {library} does not run on {gpu}; it runs on compute capability {', '.join(supported)}; "
            f"use TensorRT on this GPU: {LIBRARIES['tensorrt'].command}"
        )
    return device


def gpu_of(device: Device) -> Gpu:
    """Return name and compute capability of a CUDA device."""
    major, minor = compute_capability(device)
    return Gpu(gpu_name(device), f"{major}.{minor}")


def all_gpus() -> list[Gpu]:
    """Return the GPUs that this process sees."""
    return [gpu_of(Device(name)) for name in devices()]

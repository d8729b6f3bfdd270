"""The GPU that a device of torch is."""

from __future__ import annotations

from hami_torch.backend import torch

from hami_trt._recipe import Gpu


def gpu_of(device: torch.device) -> Gpu:
    major, minor = torch.cuda.get_device_capability(device)
    return Gpu(torch.cuda.get_device_name(device), f"{major}.{minor}")

"""Asks the installed NVIDIA driver for its version and its devices."""

from __future__ import annotations

import ctypes

LIBRARY = "libcuda.so.1"


def cuda_version() -> tuple[int, int] | None:
    """Return the newest CUDA version that the driver supports; None without a driver."""
    version = ctypes.c_int()
    try:
        if ctypes.CDLL(LIBRARY).cuDriverGetVersion(ctypes.byref(version)):
            return None
    except (OSError, AttributeError):
        return None
    return version.value // 1000, version.value % 1000 // 10


def describe() -> str:
    """Return the newest CUDA version that the driver supports, and its number of devices; or what is missing."""
    version = cuda_version()
    if version is None:
        return "not found: install an NVIDIA driver for CUDA 11.8 or newer"
    text, count = f"CUDA {version[0]}.{version[1]}", ctypes.c_int()
    driver = ctypes.CDLL(LIBRARY)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return f"{text}, no devices: check that CUDA_VISIBLE_DEVICES does not hide them"
    return f"{text}, {count.value} device{'' if count.value == 1 else 's'}"

"""Describes the installed NVIDIA driver for `hami doctor`."""

from __future__ import annotations

import ctypes

LIBRARY = "libcuda.so.1"


def describe() -> str:
    """Return the newest CUDA version that the driver supports, and its number of devices; or what is missing."""
    try:
        driver = ctypes.CDLL(LIBRARY)
    except OSError:
        return "not found: install an NVIDIA driver for CUDA 11.8 or newer"
    version, count = ctypes.c_int(), ctypes.c_int()
    if driver.cuDriverGetVersion(ctypes.byref(version)):
        return f"{LIBRARY} is not a CUDA driver"
    text = f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return f"{text}, no devices: check that CUDA_VISIBLE_DEVICES does not hide them"
    return f"{text}, {count.value} device{'' if count.value == 1 else 's'}"

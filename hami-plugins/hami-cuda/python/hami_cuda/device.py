"""The CUDA devices of this process, for backends in Python: which there are, and which one a thread works on."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import hami
from hami_tensor import Device

from hami_cuda._driver import LIBRARY
from hami_cuda._driver import cuda_version as cuda_version

_MAJOR, _MINOR = 75, 76  # attributes of a device: its compute capability


def find_device(name: str, owner: str) -> Device:
    """Return the CUDA device that the parameter `device` of a backend names.

    Args:
        name: cuda or cuda:N.
        owner: The name of the backend, for the error.

    Raises:
        hami.ConfigError: There is no driver or no such device, or it is another kind of device.
    """
    device = Device(name, ("cuda",), owner)
    available = devices()
    if not available:
        missing = "finds no GPU; check that CUDA_VISIBLE_DEVICES does not hide it"
        if cuda_version() is None:
            missing = "is not installed, or not visible in this container; install a driver for CUDA 11.8 or newer"
        raise hami.ConfigError(f'{owner}: device "{device}" is not available: the NVIDIA driver {missing}')
    return device.require(available, owner)


def devices() -> list[str]:
    """Return the names of the CUDA devices that this process sees: cuda:0, cuda:1, …; empty without a driver."""
    count = ctypes.c_int()
    if cuda_version() is None or _driver().cuInit(0) or _driver().cuDeviceGetCount(ctypes.byref(count)):
        return []
    return [f"cuda:{index}" for index in range(count.value)]


def gpu_name(device: Device) -> str:
    """Return the name of the GPU, such as "NVIDIA H100"."""
    name = ctypes.create_string_buffer(256)
    _call("cuDeviceGetName", name, len(name), _handle(device))
    return name.value.decode()


def compute_capability(device: Device) -> tuple[int, int]:
    """Return the compute capability of the GPU, such as (9, 0)."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _call("cuDeviceGetAttribute", ctypes.byref(major), _MAJOR, _handle(device))
    _call("cuDeviceGetAttribute", ctypes.byref(minor), _MINOR, _handle(device))
    return major.value, minor.value


@contextmanager
def as_current(device: Device) -> Iterator[None]:
    """Make a device that of this thread, also for libraries that use the CUDA runtime."""
    _call("cuCtxPushCurrent_v2", _context(device.index))
    try:
        yield
    finally:
        _call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


@functools.cache
def _context(index: int) -> ctypes.c_void_p:
    """Return the primary context of a device, which torch and TensorRT use too. It is kept as long as the process."""
    context = ctypes.c_void_p()
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), _handle(Device(index)))
    return context


def _handle(device: Device) -> ctypes.c_int:
    _call("cuInit", 0)
    handle = ctypes.c_int()
    _call("cuDeviceGet", ctypes.byref(handle), device.index)
    return handle


@functools.cache
def _driver() -> Any:
    return ctypes.CDLL(LIBRARY)


def _call(function: str, *arguments: Any) -> None:
    result = getattr(_driver(), function)(*arguments)
    if result:
        raise hami.PluginError(f"{function} of the NVIDIA driver failed with CUDA error {result}")

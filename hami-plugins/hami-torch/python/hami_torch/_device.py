"""Which device a backend works on: the one asked for or an error, never another one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import hami

from hami_torch._torch import torch


class _Capturing:
    """Held while a CUDA graph is captured, and by whoever waits for a whole device or gives memory back.

    Either would break the capture of another thread, and of two captures at once one would see the other's
    allocations. The thread that captures has no right to either: it would wait for itself.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder: int | None = None

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._holder == me:
            raise hami.RequestError(
                "a model that is being captured as a CUDA graph may neither open or close a pipe nor run out of memory"
            )
        self._lock.acquire()
        self._holder = me

    def __exit__(self, *_: object) -> None:
        self._holder = None
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()


capturing = _Capturing()

_WRITTEN = {"cuda": ("cuda", "cuda:N"), "cpu": ("cpu",)}


def device_of(name: str, owner: str, kinds: Sequence[str] = ("cuda", "cpu")) -> torch.device:
    """Return the device that parameter `device` names; `owner` is the backend that asks, `kinds` what it works on."""
    try:
        device = torch.device(name.strip().lower())
    except RuntimeError:
        device = None
    if device is None or device.type not in kinds:
        *others, last = (written for kind in kinds for written in _WRITTEN[kind])
        either = f"{', '.join(others)} or {last}" if others else last
        raise hami.ConfigError(f'{owner}: "device" is {either}, got "{name}"')
    or_cpu = '; or say device = "cpu"' if "cpu" in kinds else ""
    if device.type == "cpu":
        return torch.device("cpu")
    if not torch.backends.cuda.is_built():
        raise hami.ConfigError(
            f'{owner}: device "{name}" is not there: the installed torch {torch.__version__} is built without CUDA; '
            f"install a build of torch with CUDA{or_cpu}"
        )
    there = cuda_devices()
    if not there:
        raise hami.ConfigError(
            f'{owner}: device "{name}" is not there: torch {torch.__version__} sees no CUDA device; the driver is '
            f"missing or too old for it, or CUDA_VISIBLE_DEVICES hides them{or_cpu}"
        )
    index = device.index or 0
    if index >= len(there):
        raise hami.ConfigError(
            f'{owner}: device "{name}" is not there: this process sees {", ".join(there)}; use one of these'
        )
    return torch.device("cuda", index)


def is_current(device: torch.device) -> bool:
    """Whether code on this thread that says "cuda" means this device; true for the CPU, which needs no saying."""
    return device.index is None or device.index == torch._C._cuda_getDevice()


def as_current(device: torch.device) -> AbstractContextManager[Any]:
    """with as_current(device): code that says "cuda" means this device."""
    return nullcontext() if device.type == "cpu" else torch.cuda.device(device)


def cuda_devices() -> list[str]:
    """Return the CUDA devices that this process sees: cuda:0, cuda:1, …"""
    if not torch.backends.cuda.is_built() or not torch.cuda.is_available():
        return []
    return [f"cuda:{index}" for index in range(torch.cuda.device_count())]


def synchronize(device: torch.device) -> None:
    """Wait for all work on a device."""
    with capturing:
        torch.cuda.synchronize(device)


def empty_cache() -> None:
    """Give the memory that torch has freed and keeps back to the device, for others."""
    with capturing:
        torch.cuda.empty_cache()


def out_of_memory(device: torch.device, owner: str, reason: str) -> MemoryError:
    """Give freed memory back to the device and return what is raised then: it fails the batch without another try."""
    if device.type == "cuda":
        empty_cache()
    return MemoryError(
        f"{owner}: out of memory on {device}: {reason}; the batch failed and its memory was returned. "
        "Lower `max` or `instance_num`, or use a smaller dtype"
    )

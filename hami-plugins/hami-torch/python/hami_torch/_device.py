"""Resolve the `device` parameter: the result is the requested device or an error, never another device."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import hami
from hami_tensor import Device

from hami_torch._torch import torch, torch_untyped


class _CaptureLock:
    """Serializes CUDA graph captures with device-wide synchronization and with the release of cached memory.

    Synchronization or a release breaks a capture that is in progress on another thread. Two captures at once would see
    each other's allocations. The capturing thread must not do either of the two: it would wait for itself, so it gets
    an error.
    """

    def __init__(self) -> None:
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Be unlocked in a forked child: the holder is a thread of the parent."""
        self._lock = threading.Lock()
        self._holder: int | None = None

    def __enter__(self) -> None:
        this_thread = threading.get_ident()
        if self._holder == this_thread:
            raise hami.RequestError(
                "while a model is captured as a CUDA graph, it must not open or close a pipe or run out of memory"
            )
        self._lock.acquire()
        self._holder = this_thread

    def __exit__(self, *_: object) -> None:
        self._holder = None
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()


capture_lock = _CaptureLock()
os.register_at_fork(after_in_child=capture_lock.reset_after_fork)


EVERY_DEVICE = "cuda:*"


def device_of(
    name: str, owner: str, kinds: Sequence[str] = ("cuda", "cpu"), options: Mapping[str, Any] | None = None
) -> torch.device:
    """Return the device that the parameter `device` names; for cuda:*, instances get the devices in turn.

    `owner` is the name of the backend, for errors. `kinds` are the device types that it supports. `options` are those
    of `init`. Raises ConfigError if the device is not one of these or does not exist in this process.
    """
    if name == EVERY_DEVICE and "cuda" in kinds:
        instance = 0 if options is None else max(0, options.get("instance", 0))
        name = f"cuda:{instance % max(1, len(cuda_devices()))}"
    device = Device(name, kinds, owner)
    if device.kind == "cpu":
        return torch.device("cpu")
    or_cpu = ', or set device = "cpu"' if "cpu" in kinds else ""
    if not _built_with_cuda():
        raise hami.ConfigError(
            f'{owner}: device "{name}" is not available: the installed torch {torch.__version__} is built without '
            f"CUDA; install a build of torch with CUDA{or_cpu}"
        )
    available = cuda_devices()
    if not available:
        raise hami.ConfigError(
            f'{owner}: device "{name}" is not available: torch {torch.__version__} finds no CUDA device; check that a '
            f"recent CUDA driver is installed and that CUDA_VISIBLE_DEVICES does not hide the GPU{or_cpu}"
        )
    return torch.device(str(device.require(available, owner)))


def is_current(device: torch.device) -> bool:
    """Whether "cuda" means this device on the current thread; always true for the CPU."""
    return device.index is None or device.index == torch._C._cuda_getDevice()


def as_current(device: torch.device) -> AbstractContextManager[None]:
    """Return a context manager inside which "cuda" means this device."""
    return nullcontext() if device.type == "cpu" else torch.cuda.device(device)


def cuda_devices() -> list[str]:
    """Return the names of the CUDA devices that this process sees: cuda:0, cuda:1, …"""
    if not _built_with_cuda() or not torch.cuda.is_available():
        return []
    return [f"cuda:{index}" for index in range(torch.cuda.device_count())]


def _built_with_cuda() -> bool:
    return bool(torch_untyped.backends.cuda.is_built())


def synchronize(device: torch.device) -> None:
    """Wait until all work on the device is done."""
    with capture_lock:
        torch.cuda.synchronize(device)


def empty_cache() -> None:
    """Return memory that torch has freed but still caches to the device, so that other libraries can use it."""
    with capture_lock:
        torch.cuda.empty_cache()


def out_of_memory(device: torch.device, owner: str, reason: str) -> MemoryError:
    """Release cached memory and return the exception to raise; a MemoryError fails the batch without a retry."""
    if device.type == "cuda":
        empty_cache()
    return MemoryError(
        f"{owner}: out of memory on {device}: {reason}; the batch failed and its memory was freed. "
        "Lower `max` or `instance_num`, or use a smaller dtype"
    )

"""An engine on a device: its inputs, outputs and optimization profiles. All instances on a device share it."""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import hami
from hami_cuda.device import as_current
from hami_tensor import Device

from hami_trt._recipe import Recipe
from hami_trt._shapes import ShapeRange
from hami_trt._tensorrt import Library

# Supported members of TensorRT's DataType, and their names in HAMi. Types of less than a byte are not supported.
_DTYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "bfloat16",
    "FP8": "float8_e4m3fn",
    "INT8": "int8",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
    "BOOL": "bool",
}


class Port(NamedTuple):
    """An input or output; None in its shape is a dynamic axis."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]


class Engine:
    """A deserialized engine on a device.

    Attributes:
        inputs, outputs: the ports, in the order of the engine.
        batched: whether axis 0 of all ports is the batch axis.
        profiles: for each optimization profile the shapes of the inputs, in their order.
        captures: whether CUDA graphs of it are captured; False after a capture has failed.
    """

    def __init__(self, library: Library, blob: bytes, device: Device, recipe: Recipe | None, owner: str) -> None:
        self.library = library
        self.device = device
        self.captures = True
        self._mutex = threading.Lock()  # guards captures
        with self.on_device():
            self.handle, self.runtime, reason = library.deserialize(
                blob, host_code=bool(recipe and recipe.get("version_compatible"))
            )
        if self.handle is None:
            origin = f", built by {recipe['library']} {recipe['version']} for {recipe['gpu']}" if recipe else ""
            raise hami.ConfigError(f"{owner}: {library} cannot load this engine ({len(blob)} bytes{origin}): {reason}")
        names = [self.handle.get_tensor_name(index) for index in range(self.handle.num_io_tensors)]
        ports = [self._port(name, owner) for name in names]
        self.inputs = [port for port in ports if library.is_input(self.handle, port.name)]
        self.outputs = [port for port in ports if not library.is_input(self.handle, port.name)]
        self.batched = (
            bool(self.inputs) and all(port.shape for port in ports) and len({port.shape[0] for port in ports}) == 1
        )
        self.profiles = [
            [self._shape_range(port.name, profile) for port in self.inputs]
            for profile in range(self.handle.num_optimization_profiles)
        ]

    def on_device(self) -> AbstractContextManager[Any]:
        """Make the device current on this thread, which the library requires."""
        return as_current(self.device)

    def stop_captures(self) -> bool:
        """Capture no CUDA graphs from now on; return whether this is the first call."""
        with self._mutex:
            before, self.captures = self.captures, False
        return before

    def batch_rows(self, profile: int) -> tuple[int, int]:
        """Return the minimum and the maximum number of rows of a batch in a profile."""
        shapes = self.profiles[profile]
        if not self.batched:
            return 1, 1
        return max(each.min[0] for each in shapes), min(each.max[0] for each in shapes)

    def _port(self, name: str, owner: str) -> Port:
        dtype = self.handle.get_tensor_dtype(name)
        known = _DTYPES.get(dtype.name)
        if known is None:
            supported = ", ".join(_DTYPES.values())
            raise hami.ConfigError(
                f'{owner}: "{name}" of the engine has the unsupported type {dtype.name.lower()}; '
                f"supported are {supported}"
            )
        if self.library.is_on_host(self.handle, name):
            raise hami.ConfigError(
                f'{owner}: the values of "{name}" of the engine are a shape, which is not supported; export the model '
                "without such inputs and outputs"
            )
        if not self.library.is_row_major(self.handle, name):
            layout = self.handle.get_tensor_format(name).name
            raise hami.ConfigError(
                f'{owner}: "{name}" of the engine has the unsupported memory format {layout}; build the engine with '
                "inputs and outputs in format LINEAR"
            )
        if self.library.is_in_place(self.handle, name):
            raise hami.ConfigError(
                f'{owner}: output "{name}" of the engine overwrites an input, which is not supported; export the model '
                "without outputs of this kind, for example attention caches"
            )
        shape = self.handle.get_tensor_shape(name)
        return Port(name, known, tuple(None if size < 0 else int(size) for size in shape))

    def _shape_range(self, name: str, profile: int) -> ShapeRange:
        smallest, optimal, largest = self.handle.get_tensor_profile_shape(name, profile)
        return ShapeRange(*(tuple(map(int, shape)) for shape in (smallest, optimal, largest)))


_lock = threading.Lock()  # guards _open_engines; held while an engine is opened, so that it is opened once
_open_engines: weakref.WeakValueDictionary[tuple[bytes, Library, Device], Engine] = weakref.WeakValueDictionary()


def _reset_after_fork() -> None:
    """Forget the parent's engines, which work only there, and its lock, which may be held."""
    global _lock, _open_engines
    _lock, _open_engines = threading.Lock(), weakref.WeakValueDictionary()


os.register_at_fork(after_in_child=_reset_after_fork)


def open_engine(blob: bytes, library: Library, device: Device, recipe: Recipe | None, owner: str) -> Engine:
    """Return the engine with this content: the open one if there is one. It is freed with its last user.

    Args:
        recipe: how the engine was built, for messages; None if that is unknown.

    Raises:
        hami.ConfigError: the library rejects the engine, or the engine has unsupported inputs or outputs.
    """
    key = (hashlib.sha256(blob).digest(), library, device)
    with _lock:
        engine = _open_engines.get(key)
        if engine is None:
            engine = _open_engines[key] = Engine(library, blob, device, recipe, owner)
    return engine

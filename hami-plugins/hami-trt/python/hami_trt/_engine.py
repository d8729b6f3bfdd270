"""An engine on a device: what goes in and out, in which shapes; one per process and device, shared by its instances."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import hami
from hami_torch.backend import as_current, dtype_name, torch

from hami_trt._context import Context
from hami_trt._tensorrt import Library

# What TensorRT calls them. Types of less than a byte, and those that torch does not have, do not go in or out.
_DTYPES = {
    "FLOAT": torch.float32,
    "HALF": torch.float16,
    "BF16": torch.bfloat16,
    "FP8": torch.float8_e4m3fn,
    "INT8": torch.int8,
    "INT32": torch.int32,
    "INT64": torch.int64,
    "UINT8": torch.uint8,
    "BOOL": torch.bool,
}


class Port(NamedTuple):
    """An input or output: its dtype, and its shape with None for a free axis."""

    name: str
    dtype: torch.dtype
    shape: tuple[int | None, ...]


class Range(NamedTuple):
    """The shapes of an input in one profile: the smallest, the one it is best at, the largest."""

    least: tuple[int, ...]
    best: tuple[int, ...]
    most: tuple[int, ...]

    def holds(self, shape: Sequence[int]) -> bool:
        return len(shape) == len(self.least) and all(
            least <= size <= most for least, size, most in zip(self.least, shape, self.most, strict=True)
        )

    def __str__(self) -> str:
        axes = (
            str(most) if least == most else f"{least}..{most}"
            for least, most in zip(self.least, self.most, strict=True)
        )
        return f"[{', '.join(axes)}]"


class Engine:
    """What a serialized engine holds, ready on a device. `batched`: axis 0 of all that goes in and out is the batch."""

    def __init__(
        self, library: Library, blob: Any, device: torch.device, recipe: Mapping[str, Any] | None, owner: str
    ) -> None:
        self.library = library
        self.device = device
        with self.on_device():
            self.handle, self.runtime, told = library.deserialize(
                blob, host_code=bool(recipe and recipe.get("version_compatible"))
            )
        if self.handle is None:
            made = f", built by {recipe['library']} {recipe['version']} for {recipe['gpu']}" if recipe else ""
            raise hami.ConfigError(f"{owner}: {library} cannot load this engine ({len(blob)} bytes{made}): {told}")
        names = [self.handle.get_tensor_name(index) for index in range(self.handle.num_io_tensors)]
        inputs = [library.is_input(self.handle, name) for name in names]
        ports = [self._port(name, owner) for name in names]
        self.inputs = [port for port, is_input in zip(ports, inputs, strict=True) if is_input]
        self.outputs = [port for port, is_input in zip(ports, inputs, strict=True) if not is_input]
        self.batched = (
            bool(self.inputs) and all(port.shape for port in ports) and len({port.shape[0] for port in ports}) == 1
        )
        self.nothing = torch.empty(1, device=device)  # where tensors without elements lie: the library takes no null
        self.profiles = [
            [self._range(port.name, number) for port in self.inputs]
            for number in range(self.handle.num_optimization_profiles)
        ]

    def on_device(self) -> contextlib.AbstractContextManager[Any]:
        """Make the device the current one of this thread, as the library wants it."""
        return as_current(self.device)

    def context(self, number: int, owner: str) -> Context:
        """Make the execution context of instance `number`: it has the profile of its number, or shares the first."""
        return Context(self, number if number < len(self.profiles) else 0, number, owner)

    def rows(self, profile: int) -> tuple[int, int]:
        """Return how many rows a batch has in a profile, at least and at most."""
        ranges = self.profiles[profile]
        if not self.batched:
            return 1, 1
        return max(each.least[0] for each in ranges), min(each.most[0] for each in ranges)

    def _port(self, name: str, owner: str) -> Port:
        dtype = self.handle.get_tensor_dtype(name)
        kind = _DTYPES.get(dtype.name)
        if kind is None:
            known = ", ".join(map(dtype_name, _DTYPES.values()))
            raise hami.ConfigError(
                f'{owner}: "{name}" of the engine is {dtype.name.lower()}; what goes in and out is one of {known}'
            )
        if self.library.is_on_host(self.handle, name):
            raise hami.ConfigError(
                f'{owner}: "{name}" of the engine holds a shape as its values; such inputs and outputs are not served: '
                "export the model without them"
            )
        if not self.library.is_row_major(self.handle, name):
            layout = self.handle.get_tensor_format(name).name
            raise hami.ConfigError(
                f'{owner}: "{name}" of the engine lies in memory as {layout}; such inputs and outputs are not served: '
                "build the engine with LINEAR ones"
            )
        if self.library.is_in_place(self.handle, name):
            raise hami.ConfigError(
                f'{owner}: "{name}" of the engine overwrites an input, as the cache of an attention does; such outputs '
                "are not served: export the model without them"
            )
        shape = self.handle.get_tensor_shape(name)
        return Port(name, kind, tuple(None if size < 0 else int(size) for size in shape))

    def _range(self, name: str, profile: int) -> Range:
        return Range(*(tuple(map(int, shape)) for shape in self.handle.get_tensor_profile_shape(name, profile)))


_lock = threading.Lock()  # guards _open, and lets an engine be made once
_open: weakref.WeakValueDictionary[tuple[object, ...], Engine] = weakref.WeakValueDictionary()


def open_engine(
    blob: Any, library: Library, device: torch.device, recipe: Mapping[str, Any] | None, owner: str
) -> Engine:
    """Return the engine of these bytes, the one in use if there is one; it is freed with its last user.

    `recipe` is how it was made, if that is known, for messages. What the library refuses is a hami.ConfigError.
    """
    key = (hashlib.sha256(blob).digest(), library, device)
    with _lock:
        engine = _open.get(key)
        if engine is None:
            engine = _open[key] = Engine(library, blob, device, recipe, owner)
    return engine

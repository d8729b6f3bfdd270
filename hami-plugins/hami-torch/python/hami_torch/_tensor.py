"""TensorBackend, the base class of the tensor backends, and helpers to read the `data` of a request."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Mapping
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeVar

import hami
from hami.batching import group_requests

from hami_torch._device import as_current, device_of, is_current, out_of_memory
from hami_torch._rows import Rows, merged, rows_of_batch
from hami_torch._stream_handoff import run_on_stream
from hami_torch._streams import (
    current_handle,
    current_stream,
    drop_held_inputs,
    is_in_guard,
    is_on_foreign_stream,
    mark_stream,
    stream_of_instance,
    use_default_stream,
    wait_for_inputs,
)
from hami_torch._torch import torch
from hami_torch._types import Batch, Request

V = TypeVar("V")


class _Forward:
    """A function as a backend."""

    __slots__ = ("_run",)

    def __init__(self, run: Callable[[Batch], None]) -> None:
        self._run = run

    def forward(self, batch: Batch) -> None:
        self._run(batch)


_IS_PROFILED = "NVTX_INJECTION64_PATH" in os.environ  # by a profiler of NVIDIA, which gets ranges of NVTX
_MISSING = object()
_EXAMPLE = torch.empty(0)  # of the type to which hami.to_like converts
_CPU_MEMORY = (1, 3)  # device types of DLPack: CPU memory, and the same pinned by CUDA
_layout_of = attrgetter("shape", "dtype", "device")  # tensors that agree in these can be concatenated as they are

Structure = int | tuple[str, ...] | None  # None: one tensor; int: a list of so many; names: a dict with these keys


class TensorBackend(hami.Backend):
    """Base class of backends that work on tensors on one device.

    A subclass implements `run(batch)`: it reads requests with `read` and answers them with `give`. `devices` are the
    device types that the class supports, `torch_device` is the device of this instance. Several threads may call
    `run` at once, because torch releases the GIL. A batch that runs out of device memory fails with MemoryError, and
    its memory is freed.

    If the instance has a stream on the device, which it shares with native backends, `run` works on it: it is the
    current one of torch. Results are then ordered with the default stream.
    """

    thread: Literal["dedicated", "serialized", "concurrent", "process"] = "concurrent"

    devices = ("cuda", "cpu")  # without an annotation, so that it is not a parameter

    device: Annotated[str, "cuda, cuda:N, cuda:* for all by turns, or cpu; an error if it does not exist"] = "cuda"

    _stream: torch.cuda.Stream | None = None  # of the instance
    _options: Any = (
        None  # None once the first batch has asked for the stream, which any backend of the instance can set
    )

    def init(self, options: Any) -> None:
        self.torch_device = device_of(self.device, type(self).__name__, self.devices, options)
        if self.torch_device.type == "cuda":
            self._options = options

    def forward(self, batch: Batch) -> None:
        if _IS_PROFILED and self.torch_device.type == "cuda":
            with torch.cuda.nvtx.range(type(self).__name__):
                self._run_on_device(batch)
        else:
            self._run_on_device(batch)

    def _run_on_device(self, batch: Batch) -> None:
        device = self.torch_device
        if not is_current(device):
            with as_current(device):
                self._run_on_device(batch)
        elif is_on_foreign_stream(device):
            with use_default_stream(device):
                self._run_on_stream(batch)
        else:
            self._run_on_stream(batch)

    def _run_on_stream(self, batch: Batch) -> None:
        if self._options is not None:
            self._stream, self._options = stream_of_instance(self._options, self.torch_device), None
        if self._stream is None or is_in_guard():
            self._run_without_grad(batch)
        else:
            run_on_stream(self._stream, batch, _Forward(self._run_without_grad))

    def _run_without_grad(self, batch: Batch) -> None:
        grad_was_enabled = torch.is_grad_enabled()
        if grad_was_enabled:
            torch._C._set_grad_enabled(False)  # as torch.no_grad() does, with less overhead
        try:
            self.run(batch)
            return
        except torch.cuda.OutOfMemoryError as error:
            reason = str(error).strip().partition("\n")[0]
        finally:
            if grad_was_enabled:
                torch._C._set_grad_enabled(True)
        # The exception is gone here, and with its traceback the frames that held the tensors of the batch.
        if self.torch_device.type == "cuda":
            drop_held_inputs(current_stream(self.torch_device))
        raise out_of_memory(self.torch_device, type(self).__name__, reason)

    def run(self, batch: Batch) -> None:
        """Process a batch. Subclasses implement this instead of `forward`."""
        raise NotImplementedError

    def read(self, batch: Batch, read_one: Callable[[Request], Any] | None = None) -> list[tuple[Request, Any]]:
        """Return each request with what `read_one` returns for it; the default is its `data` as a tensor.

        If `read_one` raises an exception for a request, that request fails and is left out.
        """
        groups = self.read_groups(batch, read_one or self.tensor_of)
        return [pair for group in groups for pair in zip(*group, strict=True)]

    def read_groups(
        self,
        batch: Batch,
        read_one: Callable[[Request], V],
        key: Callable[[V], Hashable] | None = None,
    ) -> list[tuple[list[Request], list[V]]]:
        """Read a batch as `read` does, and return the requests and values of each group with equal keys."""
        groups = group_requests(batch, read_one, key)
        wait_for_inputs([value for _, values in groups for value in values], self.torch_device)
        return groups

    def parts(self, batch: Batch) -> tuple[list[torch.Tensor], list[int]] | None:
        """Return the `data` of a batch as tensors that can be concatenated, and the number of rows of each request.

        The list has one tensor if the requests hold consecutive rows of it, as the results of a batch do; the checks
        of the caller then run once for the batch. Otherwise it has one tensor for each request, all of the same shape
        and dtype. Returns None if any `data` is not a tensor on the device or has no rows.
        """
        rows = rows_of_batch(batch)
        if rows is not None:
            if rows.tensor.device != self.torch_device or 0 in rows.counts:
                return None
            rows.wait_for_inputs(self.torch_device)
            return [rows.tensor], rows.counts
        each = [item.get("data") for item in batch]
        if set(map(type, each)) != {torch.Tensor}:
            return None
        whole = merged(each)
        first = each[0] if whole is None else whole
        if not first.shape or first.device != self.torch_device:
            return None
        if whole is None:
            if len(set(map(_layout_of, each))) > 1:
                return None
            parts, counts = each, [first.shape[0]] * len(each)
        else:
            parts, counts = [whole], [part.shape[0] for part in each]
        if 0 in counts:
            return None
        wait_for_inputs(each, self.torch_device)
        return parts, counts

    def give_rows(self, batch: Batch, tensor: torch.Tensor, counts: list[int]) -> None:
        """Set the result of each request to its rows of one tensor; `counts` is the number of rows of each."""
        if len(batch) == 1:
            self.give(batch[0], tensor)
        else:
            hami.batching.scatter(batch, Rows(tensor, counts, current_handle(self.torch_device)))

    def tensor_of(self, item: Request) -> torch.Tensor:
        """Return the request's `data` as a tensor on the device; raises hami.Error if it is not one."""
        return self.check(as_tensor(data_of(item, type(self).__name__), type(self).__name__))

    def check(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor if it is on the device of this instance; raises DataTypeError otherwise."""
        if tensor.device == self.torch_device:
            return tensor
        owner, expected = type(self).__name__, self.torch_device
        remedy = f"put {'CpuTensor' if expected.type == 'cpu' else 'GpuTensor'} before it"
        if tensor.device.type in self.devices:
            remedy += f', or set device = "{tensor.device}"'
        raise hami.DataTypeError(
            f"{owner} takes a tensor on {expected}, got {show(tensor)} on {tensor.device}; {remedy}"
        )

    def data_of(self, item: Request) -> Any:
        """Return what the request gives to this backend: its `data`. Raises RequestError if it has none."""
        return data_of(item, type(self).__name__)

    def give(self, item: Request, value: Any) -> None:
        """Set the result of a request: a tensor, or a list or dict of tensors, made on the current stream.

        It may also contain tensors of the request's own input.
        """
        handle = current_handle(self.torch_device)
        if handle:
            own = [id(tensor) for tensor in tensors_of(self.data_of(item))]
            for tensor in tensors_of(value):
                if id(tensor) not in own:
                    mark_stream(tensor, handle)
        item["result"] = value


def data_of(item: Request, owner: str) -> Any:
    """Return the request's `data`; raises RequestError if it has none."""
    data = item.get("data", _MISSING)
    if data is _MISSING:
        raise hami.RequestError(f'{owner}: the request has no "data"; its keys are {sorted(item.keys())}')
    return data


def as_tensor(data: Any, owner: str) -> torch.Tensor:
    """Return `data` as a tensor: a torch tensor unchanged, other objects through DLPack, without a copy if possible."""
    if isinstance(data, torch.Tensor):
        return data
    if not hasattr(data, "__dlpack__"):
        raise hami.DataTypeError(
            f"{owner} takes a torch tensor or an object with DLPack, for example a NumPy array; "
            f"got {type(data).__name__}"
        )
    try:
        source = hami.to_numpy(data).copy() if _needs_copy(data) else data
        return hami.to_like(source, _EXAMPLE)
    except hami.DataTypeError as error:
        reason = error.__cause__ or error
        raise hami.DataTypeError(f"{owner}: torch cannot read this {type(data).__name__}: {reason}") from error


def _needs_copy(data: Any) -> bool:
    """Whether memory is read-only, which torch cannot represent, or has negative strides, which abort the process.

    Memory of a device is not asked for a buffer: the exception would cost more than the rest of the conversion.
    """
    if data.__dlpack_device__()[0] not in _CPU_MEMORY:
        return False
    try:
        view = memoryview(data)
    except (BufferError, TypeError, ValueError):  # of a dtype that only torch knows
        return False
    return view.readonly or min(view.strides or (), default=0) < 0


def size_of(item: Request) -> int:
    """Return the request's `request_size`, its number of rows."""
    size: int = item.get("request_size", 1)
    return size


def rows_of(tensor: torch.Tensor, item: Request, owner: str, name: str = "data") -> torch.Tensor:
    """Return the tensor if it has `request_size` rows along axis 0; raises RequestError otherwise."""
    size = size_of(item)
    if tensor.ndim == 0 or tensor.shape[0] != size:
        raise hami.RequestError(
            f'{owner}: "{name}" is {show(tensor)}, but request_size is {size}; axis 0 must have request_size rows'
        )
    return tensor


def casts_safely(source: torch.dtype, target: torch.dtype) -> bool:
    """Whether `target` represents every value of `source` exactly; the same rule as in the core's FixTensor."""
    if source == target:
        return True
    if target == torch.bool or (source.is_complex and not target.is_complex):
        return False
    if _has_fractions(source):
        return (
            _has_fractions(target)
            and torch.finfo(source).eps >= torch.finfo(target).eps
            and torch.finfo(source).max <= torch.finfo(target).max
        )
    if _is_signed(source) and not _is_signed(target):
        return False
    return _integer_bits(source) <= _integer_bits(target)


def _has_fractions(dtype: torch.dtype) -> bool:
    return bool(dtype.is_floating_point or dtype.is_complex)


def _is_signed(dtype: torch.dtype) -> bool:
    return _has_fractions(dtype) or (dtype != torch.bool and torch.iinfo(dtype).min < 0)


def _integer_bits(dtype: torch.dtype) -> int:
    """Return the largest number of bits, without the sign, of which the dtype represents every integer exactly."""
    if _has_fractions(dtype):
        return 1 - round(math.log2(torch.finfo(dtype).eps))
    return 1 if dtype == torch.bool else torch.iinfo(dtype).max.bit_length()


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Return the tensors of a value: itself, or those of a list or dict."""
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return [part for part in parts if isinstance(part, torch.Tensor)]


def named_parts(value: Any) -> dict[str, Any]:
    """Return the parts of a request's `data` by the name that errors use: data, data[0], … or the keys of a dict."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (list, tuple)):
        return {f"data[{index}]": part for index, part in enumerate(value)}
    return {"data": value}


def structure_of(value: Any) -> Structure:
    """Return whether a value is one tensor, a list or a dict: None, its length, or its keys."""
    if isinstance(value, Mapping):
        return tuple(value)
    return len(value) if isinstance(value, (list, tuple)) else None


def map_tensors(value: Any, function: Callable[[Any], Any]) -> Any:
    """Apply a function to a value or to each part of a list or dict; keep the structure, with lists for tuples."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return {name: function(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [function(part) for part in value]
    return function(value)


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype without "torch.": float32."""
    return str(dtype).removeprefix("torch.")


def show(tensor: torch.Tensor) -> str:
    """Return dtype and shape for messages: float32 [1, 3, 224, 224]."""
    return f"{dtype_name(tensor.dtype)} {list(tensor.shape)}"

"""FixTensor: make tensors fit the engine of the instance, or check their shape and cast them to one dtype."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import hami

from hami_torch._device import device_of
from hami_torch._tensor import (
    WITHOUT_BATCH_AXIS,
    TensorBackend,
    as_tensor,
    casts_safely,
    data_of,
    dtype_name,
    map_tensors,
    named_parts,
    set_tensor_rows,
    show,
)
from hami_torch._torch import torch
from hami_torch._types import Batch, Request

_CHANNELS_FIRST, _CHANNELS_LAST = (0, 3, 1, 2), (0, 2, 3, 1)


class EngineInput(NamedTuple):
    """An entry of the option `engine_inputs`, by which an engine announces what it takes."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...] | None  # -1 matches any size; None: any shape
    has_batch_axis: bool

    def takes(self, shape: tuple[int, ...]) -> bool:
        if self.shape is None:
            return True
        first = 1 if self.has_batch_axis else 0
        return len(shape) == len(self.shape) and all(
            expected in (-1, size) for expected, size in zip(self.shape[first:], shape[first:], strict=True)
        )

    def __str__(self) -> str:
        shape = "" if self.shape is None else f" {list(self.shape)}"
        return f'{dtype_name(self.dtype)}{shape} for input "{self.name}" of the engine'


class FixTensor(TensorBackend):
    """Make tensors fit the engine of the instance, or check their shape and cast them to `dtype`.

    An engine announces its inputs: FixTensor casts, moves and permutes the data, and adds the batch axis. Parameters
    replace what the engine says. A request fails if its tensor does not fit. `data` is a tensor, or a list or dict of
    tensors; without an engine, on the device. The core has a backend of the same name for the CPU.
    """

    lightweight = True  # on a CPU

    shape: Annotated[list[Any] | None, "size of each axis; -1 matches any size"] = None
    dtype: Annotated[str | None, "a dtype of torch, for example float32, float16 or uint8"] = None
    exact: Annotated[
        bool | None,
        "whether to refuse casts that round floating-point numbers; default: true with `dtype`, else false",
    ] = None

    def init(self, options: Any) -> None:
        super().init(options)
        try:
            self._shape = None if self.shape is None else [int(size) for size in self.shape]
        except ValueError:
            raise hami.ConfigError(f'FixTensor: "shape" must be a list of integers, got {self.shape!r}') from None
        self._dtype = getattr(torch, self.dtype, None) if self.dtype else None
        if self.dtype and not isinstance(self._dtype, torch.dtype):
            raise hami.ConfigError(
                f'FixTensor: "dtype" must be a dtype of torch, for example float32 or uint8; got "{self.dtype}"'
            )
        self._exact = self.exact if self.exact is not None else self._dtype is not None
        announced = options.get("engine_inputs", None) or []
        self._engine = [_engine_input(entry) for entry in announced]
        self._target_device = device_of(announced[0]["device"], "FixTensor") if self._engine else self.torch_device

    def run(self, batch: Batch) -> None:
        for item, value in self.read(batch, self._tensors):
            targets = self._targets(value)
            is_row = bool(targets) and self._shape is None and _is_row(value, targets)
            parts = zip(named_parts(value).values(), targets or _nothing(value), strict=True)
            fitted = [self._fitted(tensor[None] if is_row else tensor, target) for tensor, target in parts]
            self.give(item, _with_parts(value, fitted))
            set_tensor_rows(item, WITHOUT_BATCH_AXIS if is_row else None)

    def _tensors(self, item: Request) -> Any:
        """Return the tensors of a request; raises hami.Error if one does not fit."""
        value = map_tensors(data_of(item, "FixTensor"), lambda part: as_tensor(part, "FixTensor"))
        targets = self._targets(value)
        is_row = bool(targets) and self._shape is None and _is_row(value, targets)
        for tensor, target in zip(named_parts(value).values(), targets or _nothing(value), strict=True):
            if not self._engine:
                self.check(tensor)
            self._check(tensor[None] if is_row else tensor, tensor, target)
        return value

    def _targets(self, value: Any) -> list[EngineInput]:
        if not self._engine or (self._shape is not None and self._dtype is not None):
            return []
        by_name = {each.name: each for each in self._engine}
        parts = named_parts(value)
        if isinstance(value, Mapping) and parts.keys() == by_name.keys():
            return [by_name[name] for name in parts]
        if isinstance(value, Mapping) or len(parts) != len(self._engine):
            raise hami.RequestError(
                f"FixTensor: the engine has the inputs [{', '.join(by_name)}], got [{', '.join(parts)}]"
            )
        return self._engine

    def _check(self, tensor: torch.Tensor, given: torch.Tensor, target: EngineInput | None) -> None:
        shape = self._shape
        if shape is not None:
            if len(shape) != tensor.ndim or any(
                expected not in (-1, size) for expected, size in zip(shape, tensor.shape, strict=True)
            ):
                raise hami.RequestError(f"FixTensor takes tensors of shape {shape}, got {show(given)}")
        elif target is not None and _arranged(tensor, target) is None:
            raise hami.RequestError(f"FixTensor takes {target}, got {show(given)}")
        dtype = self._wanted_dtype(target)
        if dtype is None or casts_safely(tensor.dtype, dtype):
            return
        if self._exact or not (tensor.is_floating_point() and dtype.is_floating_point):
            if self._dtype is not None or target is None:
                raise hami.DataTypeError(f"FixTensor: {self.dtype} cannot represent every value of {show(given)}")
            raise hami.DataTypeError(
                f"FixTensor takes {target}, got {show(given)}; a cast from {dtype_name(given.dtype)} would lose values"
            )

    def _wanted_dtype(self, target: EngineInput | None) -> torch.dtype | None:
        return self._dtype if self._dtype is not None or target is None else target.dtype

    def _fitted(self, tensor: torch.Tensor, target: EngineInput | None) -> torch.Tensor:
        if target is not None and self._shape is None:
            arranged = _arranged(tensor, target)
            assert arranged is not None, "checked before"
            tensor = arranged
        dtype = self._wanted_dtype(target) or tensor.dtype
        if tensor.device == self._target_device:
            return tensor.to(dtype)
        # The smaller of the two forms crosses the bus.
        if dtype.itemsize < tensor.dtype.itemsize:
            tensor = tensor.to(dtype)
        blocking = self._target_device.type == "cpu"  # readers on the CPU do not know the stream
        return tensor.to(self._target_device, non_blocking=not blocking).to(dtype)


def _engine_input(entry: Mapping[str, Any]) -> EngineInput:
    dtype = getattr(torch, entry["dtype"], None)
    if not isinstance(dtype, torch.dtype):
        raise hami.ConfigError(f'FixTensor: torch has no dtype "{entry["dtype"]}", which the engine takes')
    shape = entry["shape"]
    return EngineInput(entry["name"], dtype, None if shape is None else tuple(shape), entry["batch_axis"])


def _with_parts(value: Any, parts: list[torch.Tensor]) -> Any:
    """Return a value of the same structure with other tensors."""
    rest = iter(parts)
    return map_tensors(value, lambda _: next(rest))


def _nothing(value: Any) -> list[EngineInput | None]:
    return [None] * len(named_parts(value))


def _is_row(value: Any, targets: list[EngineInput]) -> bool:
    """Whether every tensor lacks just the batch axis."""
    return all(
        target.has_batch_axis and target.shape is not None and tensor.ndim + 1 == len(target.shape)
        for tensor, target in zip(named_parts(value).values(), targets, strict=True)
    )


def _arranged(tensor: torch.Tensor, target: EngineInput) -> torch.Tensor | None:
    """Return the tensor, or images with channels last as channels first or the reverse; None if none of them fits."""
    if target.takes(tuple(tensor.shape)):
        return tensor
    for order in (_CHANNELS_FIRST, _CHANNELS_LAST) if tensor.ndim == 4 else ():
        if target.takes(tuple(tensor.shape[axis] for axis in order)):
            return tensor.permute(order)
    return None

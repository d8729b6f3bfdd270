"""FixTensor: lets one shape and one dtype pass."""

from __future__ import annotations

import math
from typing import Annotated, Any

import hami

from hami_torch._tensor import TensorBackend, as_tensor, data_of, each_tensor, show
from hami_torch._torch import torch


class FixTensor(TensorBackend):
    """Let tensors of the shape pass and refuse others; cast to the dtype.

    Where the dtype could not hold every value of the tensor's the request is refused. `data`: a tensor on the device,
    or a list or dict of them. The core has a backend of this name for the CPU.
    """

    shape: Annotated[list | None, "sizes of the axes; -1 is any size"] = None
    dtype: Annotated[str | None, "as torch names them: float32, float16, uint8"] = None

    def init(self, options: Any) -> None:
        super().init(options)
        try:
            self._shape = None if self.shape is None else [int(size) for size in self.shape]
        except ValueError:
            raise hami.ConfigError(f'FixTensor: "shape" is a list of whole numbers, got {self.shape!r}') from None
        self._dtype = getattr(torch, self.dtype, None) if self.dtype else None
        if self.dtype and not isinstance(self._dtype, torch.dtype):
            raise hami.ConfigError(
                f'FixTensor: torch has no dtype "{self.dtype}"; there are float32, float16, uint8, …'
            )

    def run(self, batch: list[Any]) -> None:
        for item, value in self.read(batch, self._tensors):
            self.give(item, each_tensor(value, self._cast))

    def _tensors(self, item: Any) -> Any:
        return each_tensor(data_of(item, "FixTensor"), lambda part: self._fits(as_tensor(part, "FixTensor")))

    def _fits(self, tensor: torch.Tensor) -> torch.Tensor:
        self.check(tensor)
        shape = self._shape
        if shape is not None and (
            len(shape) != tensor.ndim
            or any(wanted not in (-1, size) for wanted, size in zip(shape, tensor.shape, strict=True))
        ):
            raise hami.RequestError(f"FixTensor takes {shape}, got {show(tensor)}")
        if self._dtype is not None and not _casts_safely(tensor.dtype, self._dtype):
            raise hami.DataTypeError(f"FixTensor: {self.dtype} cannot hold every value of {show(tensor)}")
        return tensor

    def _cast(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self._dtype is None else tensor.to(self._dtype)


def _casts_safely(given: torch.dtype, wanted: torch.dtype) -> bool:
    """Whether every value of one dtype has its equal in the other, as the core's FixTensor has it."""
    if given == wanted:
        return True
    if wanted == torch.bool or (given.is_complex and not wanted.is_complex):
        return False
    if _has_fractions(given):
        return (
            _has_fractions(wanted)
            and torch.finfo(given).eps >= torch.finfo(wanted).eps
            and torch.finfo(given).max <= torch.finfo(wanted).max
        )
    if _has_sign(given) and not _has_sign(wanted):
        return False
    return _whole_bits(given) <= _whole_bits(wanted)


def _has_fractions(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _has_sign(dtype: torch.dtype) -> bool:
    return _has_fractions(dtype) or (dtype != torch.bool and torch.iinfo(dtype).min < 0)


def _whole_bits(dtype: torch.dtype) -> int:
    """Return with how many bits whole numbers are told apart."""
    if _has_fractions(dtype):
        return 1 - round(math.log2(torch.finfo(dtype).eps))
    return 1 if dtype == torch.bool else torch.iinfo(dtype).max.bit_length()

"""FixTensor: check the shape of tensors and cast them to one dtype."""

from __future__ import annotations

import math
from typing import Annotated, Any

import hami

from hami_torch._tensor import TensorBackend, as_tensor, data_of, map_tensors, show
from hami_torch._torch import torch
from hami_torch._types import Batch, Request


class FixTensor(TensorBackend):
    """Reject tensors of another shape than `shape`, and cast the others to `dtype`.

    A request is also rejected if `dtype` cannot represent every value of the tensor's dtype. `data` is a tensor on the
    device, or a list or dict of tensors. The core has a backend of the same name for the CPU.
    """

    shape: Annotated[list[Any] | None, "size of each axis; -1 matches any size"] = None
    dtype: Annotated[str | None, "a dtype of torch, for example float32, float16 or uint8"] = None

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

    def run(self, batch: Batch) -> None:
        for item, value in self.read(batch, self._tensors):
            self.give(item, map_tensors(value, self._cast))

    def _tensors(self, item: Request) -> Any:
        return map_tensors(data_of(item, "FixTensor"), lambda part: self._checked(as_tensor(part, "FixTensor")))

    def _checked(self, tensor: torch.Tensor) -> torch.Tensor:
        self.check(tensor)
        shape = self._shape
        if shape is not None and (
            len(shape) != tensor.ndim
            or any(expected not in (-1, size) for expected, size in zip(shape, tensor.shape, strict=True))
        ):
            raise hami.RequestError(f"FixTensor takes tensors of shape {shape}, got {show(tensor)}")
        if self._dtype is not None and not _casts_safely(tensor.dtype, self._dtype):
            raise hami.DataTypeError(f"FixTensor: {self.dtype} cannot represent every value of {show(tensor)}")
        return tensor

    def _cast(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self._dtype is None else tensor.to(self._dtype)


def _casts_safely(source: torch.dtype, target: torch.dtype) -> bool:
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

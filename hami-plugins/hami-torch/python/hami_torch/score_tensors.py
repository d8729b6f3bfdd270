"""SoftmaxTensor, ArgMaxTensor and TopKTensor: operations on scores along one axis, with the results of the core's."""

from __future__ import annotations

from typing import Annotated, Any

import hami

from hami_torch._tensor import TensorBackend, as_tensor, data_of, map_tensors, show
from hami_torch._torch import torch
from hami_torch._types import Batch, Request


class ScoreTensor(TensorBackend):
    """Base class: maps each tensor along `axis`."""

    max = "auto"
    lightweight = True  # on a CPU

    axis: Annotated[int, "negative: from the end"] = -1

    def run(self, batch: Batch) -> None:
        for item, value in self.read(batch, self._tensors):
            self.give(item, map_tensors(value, self.compute))

    def _tensors(self, item: Request) -> Any:
        owner = type(self).__name__
        return map_tensors(data_of(item, owner), lambda part: self.accept(self.check(as_tensor(part, owner))))

    def accept(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor; raises hami.Error if this backend cannot compute it."""
        if not -tensor.ndim <= self.axis < tensor.ndim:
            raise hami.RequestError(
                f"{type(self).__name__} works along axis {self.axis}, which {show(tensor)} does not have"
            )
        if tensor.is_complex():
            raise hami.DataTypeError(f"{type(self).__name__} takes real numbers, got {show(tensor)}")
        return tensor

    def compute(self, tensor: torch.Tensor) -> Any:
        raise NotImplementedError


class SoftmaxTensor(ScoreTensor):
    """Softmax along `axis`. The dtype stays; float16 and bfloat16 are computed as float32.

    `data` is a tensor on the device, or a list or dict of tensors. The core has a backend of the same name for the CPU.
    """

    def accept(self, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            raise hami.DataTypeError(
                f"SoftmaxTensor takes floating point numbers (float16, bfloat16, float32, float64), got {show(tensor)}"
            )
        return super().accept(tensor)

    def compute(self, tensor: torch.Tensor) -> torch.Tensor:
        wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
        return torch.softmax(tensor, self.axis, dtype=wide).to(tensor.dtype)


class ArgMaxTensor(ScoreTensor):
    """The index (int64) of the largest element along `axis`, which is removed; the first of equal elements, NaN first.

    `data` is a tensor on the device, or a list or dict of tensors. The core has a backend of the same name for the CPU.
    """

    def accept(self, tensor: torch.Tensor) -> torch.Tensor:
        if super().accept(tensor).shape[self.axis] == 0:
            raise hami.RequestError(f"ArgMaxTensor: axis {self.axis} of {show(tensor)} is empty")
        return tensor

    def compute(self, tensor: torch.Tensor) -> torch.Tensor:
        return (tensor.byte() if tensor.dtype == torch.bool else tensor).argmax(self.axis)


class TopKTensor(ScoreTensor):
    """The `k` largest elements along `axis`, largest first: a dict of `values` and `indices` (int64).

    The first of equal elements comes first; NaN counts as the largest. `data` is a tensor on the device, or a list or
    dict of tensors. The core has a backend of the same name for the CPU.
    """

    k: Annotated[int, "number of elements"]

    def accept(self, tensor: torch.Tensor) -> torch.Tensor:
        size = super().accept(tensor).shape[self.axis]
        if self.k > size:
            raise hami.RequestError(f"TopKTensor: k is {self.k}, and axis {self.axis} of {show(tensor)} has {size}")
        return tensor

    def compute(self, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
        # Not torch.topk, which returns equal elements in any order.
        values, indices = torch.sort(tensor, dim=self.axis, descending=True, stable=True)
        return {
            "values": values.narrow(self.axis, 0, self.k).contiguous(),
            "indices": indices.narrow(self.axis, 0, self.k).contiguous(),
        }

"""GpuTensor: copy tensors to the device."""

from __future__ import annotations

from typing import Any

from hami_torch._tensor import TensorBackend, as_tensor, data_of, map_tensors
from hami_torch._torch import torch
from hami_torch._types import Batch, Request


class GpuTensor(TensorBackend):
    """Copy `data`, a tensor or a list or dict of tensors, to the device; tensors that are there pass unchanged.

    Accepts torch tensors, NumPy arrays and any object with DLPack; shape and dtype stay. The copy does not make the
    CPU wait for the GPU, only for the read of memory that is not pinned by torch.
    """

    max = "auto"

    def run(self, batch: Batch) -> None:
        for item, value in self.read(batch, _tensors):
            self.give(item, map_tensors(value, self._move))

    def _move(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device == self.torch_device:
            return tensor
        return tensor.to(self.torch_device, non_blocking=not hasattr(tensor, _FOREIGN))


_FOREIGN = "_hami_foreign"  # attribute of a tensor over pinned memory of another package


def _tensors(item: Request) -> Any:
    return map_tensors(data_of(item, "GpuTensor"), _tensor)


def _tensor(part: Any) -> torch.Tensor:
    tensor = as_tensor(part, "GpuTensor")
    # torch does not know when another package uses its pinned memory again; of its own, it keeps an event.
    if tensor is not part and not tensor.is_cuda and tensor.is_pinned():
        setattr(tensor, _FOREIGN, True)
    return tensor

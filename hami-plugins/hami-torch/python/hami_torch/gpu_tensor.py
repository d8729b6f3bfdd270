"""GpuTensor: copy tensors to the device."""

from __future__ import annotations

from typing import Any

from hami_torch._tensor import TensorBackend, as_tensor, data_of, map_tensors
from hami_torch._torch import torch
from hami_torch._types import Batch, Request


class GpuTensor(TensorBackend):
    """Copy `data`, a tensor or a list or dict of tensors, to the device; tensors that are there pass unchanged.

    Accepts torch tensors, NumPy arrays and any object with DLPack; shape and dtype stay. The copy does not make the
    CPU wait for the GPU, only for the read of memory that is not pinned.
    """

    max = "auto"

    def run(self, batch: Batch) -> None:
        for item, value in self.read(batch, _tensors):
            self.give(item, map_tensors(value, self._move))

    def _move(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if tensor.device == self.torch_device else tensor.to(self.torch_device, non_blocking=True)


def _tensors(item: Request) -> Any:
    return map_tensors(data_of(item, "GpuTensor"), lambda part: as_tensor(part, "GpuTensor"))

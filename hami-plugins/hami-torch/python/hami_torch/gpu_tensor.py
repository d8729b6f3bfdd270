"""GpuTensor: onto the device."""

from __future__ import annotations

from typing import Any

from hami_torch._tensor import TensorBackend, as_tensor, data_of, each_tensor
from hami_torch._torch import torch


class GpuTensor(TensorBackend):
    """Move `data`, a tensor or a list or dict of them, onto the device; what is there already stays as it is.

    Takes torch's tensors, NumPy arrays and anything else with DLPack. The CPU waits only as long as it takes to read
    memory that is not pinned.
    """

    def run(self, batch: list[Any]) -> None:
        for item, value in self.read(batch, _tensors):
            self.give(item, each_tensor(value, self._move))

    def _move(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if tensor.device == self.torch_device else tensor.to(self.torch_device, non_blocking=True)


def _tensors(item: Any) -> Any:
    return each_tensor(data_of(item, "GpuTensor"), lambda part: as_tensor(part, "GpuTensor"))

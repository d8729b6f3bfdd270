"""ContiguousTensor: row by row in memory, without gaps."""

from __future__ import annotations

from typing import Any

from hami_torch._tensor import TensorBackend, as_tensor, data_of, each_tensor
from hami_torch._torch import torch


class ContiguousTensor(TensorBackend):
    """Copy a tensor that does not lie in memory row by row without gaps; others pass as they are.

    `data`: a tensor on the device, or a list or dict of them. The core has a backend of this name for the CPU.
    """

    def run(self, batch: list[Any]) -> None:
        for item, value in self.read(batch, self._tensors):
            self.give(item, each_tensor(value, torch.Tensor.contiguous))

    def _tensors(self, item: Any) -> Any:
        owner = "ContiguousTensor"
        return each_tensor(data_of(item, owner), lambda part: self.check(as_tensor(part, owner)))

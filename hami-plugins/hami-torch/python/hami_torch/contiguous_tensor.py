"""ContiguousTensor: lay tensors out row by row in memory, without gaps."""

from __future__ import annotations

from typing import Any

from hami_torch._tensor import TensorBackend, as_tensor, data_of, map_tensors
from hami_torch._torch import torch
from hami_torch._types import Batch, Request


class ContiguousTensor(TensorBackend):
    """Copy tensors that are not contiguous in memory; contiguous tensors pass unchanged.

    `data` is a tensor on the device, or a list or dict of tensors; shape and dtype stay. The core has a backend of
    the same name for the CPU.
    """

    max = "auto"
    lightweight = True  # on a CPU

    def run(self, batch: Batch) -> None:
        for item, value in self.read(batch, self._tensors):
            self.give(item, map_tensors(value, torch.Tensor.contiguous))

    def _tensors(self, item: Request) -> Any:
        owner = "ContiguousTensor"
        return map_tensors(data_of(item, owner), lambda part: self.check(as_tensor(part, owner)))

"""CatTensor: a batch's tensors as one."""

from __future__ import annotations

from typing import Annotated, Any

import hami

from hami_torch._rows import gathered, rows_of
from hami_torch._tensor import TensorBackend, show
from hami_torch._torch import torch


class CatTensor(TensorBackend):
    """Gather the tensors of a batch along axis 0; all requests get the same `result`.

    Each tensor is on the device and has as many rows as its request's `request_size` says. The core has a backend of
    this name for the CPU.
    """

    stack: Annotated[bool, "the tensors have no such axis: it is made"] = False

    def run(self, batch: list[Any]) -> None:
        members = self.read(batch, self._rows)
        if not members:
            return
        first = members[0][1]
        for _, tensor in members:
            if tensor.dtype != first.dtype or tensor.shape[1:] != first.shape[1:]:
                # Each may be right by itself, so this fails the batch: its node then tries every request alone.
                raise hami.RequestError(
                    f"CatTensor cannot gather {show(first)} and {show(tensor)} in one batch; "
                    "they may differ along axis 0 only"
                )
        whole = gathered([tensor for _, tensor in members])
        for item, _ in members:
            self.give(item, whole)

    def _rows(self, item: Any) -> torch.Tensor:
        tensor = self.tensor_of(item)
        if not self.stack:
            return rows_of(tensor, item, "CatTensor")
        if item.get("request_size", 1) != 1:
            raise hami.RequestError(
                f"CatTensor(stack=true) takes requests of one item; request_size is {item['request_size']}"
            )
        return tensor[None]

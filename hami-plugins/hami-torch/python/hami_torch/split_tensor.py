"""SplitTensor: the rows of one tensor back to the requests of a batch."""

from __future__ import annotations

from typing import Annotated, Any

import hami

from hami_torch._tensor import TensorBackend, as_tensor, data_of, each_tensor, flat, show, size_of
from hami_torch._torch import torch


class SplitTensor(TensorBackend):
    """Give each request of a batch its rows of the tensor that all hold in `data`, without a copy.

    It gets as many as its `request_size` says. `data`: a tensor on the device, or a list or dict of them. The core has
    a backend of this name for the CPU.
    """

    stack: Annotated[bool, "a request gets its row without the axis"] = False

    def run(self, batch: list[Any]) -> None:
        total = sum(map(size_of, batch))
        start = 0
        for item in batch:
            stop = start + size_of(item)
            for _, value in self.read([item], lambda item: self._whole(item, total)):
                self.give(item, each_tensor(value, lambda whole, rows=(start, stop): self._part(whole, *rows)))
            start = stop

    def _whole(self, item: Any, total: int) -> Any:
        if self.stack and size_of(item) != 1:
            raise hami.RequestError(
                f"SplitTensor(stack=true) takes requests of one item; request_size is {size_of(item)}"
            )
        value = each_tensor(data_of(item, "SplitTensor"), lambda part: self.check(as_tensor(part, "SplitTensor")))
        for tensor in flat(value):
            if tensor.ndim == 0 or len(tensor) != total:
                raise hami.RequestError(
                    f"SplitTensor: {show(tensor)} cannot be split: the requests of this batch count {total} rows"
                )
        return value

    def _part(self, whole: torch.Tensor, start: int, stop: int) -> torch.Tensor:
        return whole[start] if self.stack else whole[start:stop]

"""SplitTensor: split one tensor into the rows of each request of a batch."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import hami

from hami_torch._rows import owned
from hami_torch._tensor import (
    TENSOR_ROWS,
    WITHOUT_BATCH_AXIS,
    TensorBackend,
    as_tensor,
    count_rows,
    data_of,
    map_tensors,
    set_tensor_rows,
    show,
    size_of,
    tensors_of,
)
from hami_torch._torch import torch
from hami_torch._types import Batch, Request


class SplitTensor(TensorBackend):
    """Give each request of a batch its rows of the tensor that all of them hold in `data`; they own their memory.

    A request gets as many rows as it gave to CatTensor, else `request_size` rows (1 if absent), in the order of the
    batch. If FixTensor added the batch axis, the result has none. `data` is a tensor on the device, or a
    list or dict of tensors. The core has a backend of the same name for the CPU.
    """

    lightweight = True  # on a CPU

    stack: Annotated[bool, "remove axis 0 from each result, for requests of one item"] = False

    def run(self, batch: Batch) -> None:
        total = sum(map(count_rows, batch))
        start = 0
        for item in batch:
            rows = slice(start, start + count_rows(item))
            is_row = self.stack or item.get(TENSOR_ROWS, None) == WITHOUT_BATCH_AXIS
            at = rows.start if is_row else rows
            for _, value in self.read([item], lambda item: self._whole(item, total)):
                self.give(item, map_tensors(value, partial(_own_rows, at)))
                set_tensor_rows(item, None)
            start = rows.stop

    def _whole(self, item: Request, total: int) -> Any:
        if self.stack and size_of(item) != 1:
            raise hami.RequestError(
                f"SplitTensor(stack=true) takes requests of one item; request_size is {size_of(item)}"
            )
        value = map_tensors(data_of(item, "SplitTensor"), lambda part: self.check(as_tensor(part, "SplitTensor")))
        for tensor in tensors_of(value):
            if tensor.ndim == 0 or len(tensor) != total:
                raise hami.RequestError(
                    f"SplitTensor cannot split {show(tensor)}: the requests of this batch have {total} rows in total, "
                    "and axis 0 must have as many"
                )
        return value


def _own_rows(at: int | slice, tensor: torch.Tensor) -> torch.Tensor:
    return owned(tensor[at])

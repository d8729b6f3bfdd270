"""CatTensor: concatenate the tensors of a batch."""

from __future__ import annotations

from typing import Annotated, Any

import hami

from hami_torch._rows import concatenated
from hami_torch._tensor import (
    TensorBackend,
    as_tensor,
    count_rows,
    data_of,
    map_tensors,
    named_parts,
    rows_of,
    set_tensor_rows,
    show,
    size_of,
    structure_of,
)
from hami_torch._torch import torch
from hami_torch._types import Batch, Request


class CatTensor(TensorBackend):
    """Concatenate the tensors of a batch along axis 0; every request gets the whole tensor as `result`.

    `data` is a tensor on the device, or a list or dict of tensors; each has `request_size` rows or, if that is absent,
    as many as the first of them. All requests of the batch have the same dtype, and the same shape except axis 0. The
    core has a backend of the same name for the CPU.
    """

    lightweight = True  # on a CPU

    stack: Annotated[bool, "add axis 0 to each tensor first, for requests of one item"] = False

    def run(self, batch: Batch) -> None:
        members = self.read(batch, self._rows)
        if not members:
            return
        whole = _concatenate([value for _, value in members])
        for item, _ in members:
            self.give(item, whole)

    def _rows(self, item: Request) -> Any:
        data = data_of(item, "CatTensor")
        tensors = {name: self.check(as_tensor(part, "CatTensor")) for name, part in named_parts(data).items()}
        if self.stack:
            if size_of(item) != 1:
                raise hami.RequestError(
                    f"CatTensor(stack=true) takes requests of one item; request_size is {size_of(item)}"
                )
            rows = iter([tensor[None] for tensor in tensors.values()])
        elif "request_size" in item:
            rows = iter([rows_of(tensor, item, "CatTensor", name) for name, tensor in tensors.items()])
        else:
            count = _common_rows(tensors)
            if count != count_rows(item):
                set_tensor_rows(item, count)
            rows = iter(tensors.values())
        return map_tensors(data, lambda _: next(rows))


def _common_rows(tensors: dict[str, torch.Tensor]) -> int:
    """Return the number of rows that all tensors of a request have; raises RequestError if there is none."""
    counts = {tensor.shape[0] if tensor.ndim else None for tensor in tensors.values()}
    if len(counts) > 1 or None in counts:
        shown = ", ".join(f'"{name}" is {show(tensor)}' for name, tensor in tensors.items())
        raise hami.RequestError(
            f"CatTensor: {shown}; all tensors of a request must have the same number of rows along axis 0"
        )
    return counts.pop() or 0 if counts else 1


def _concatenate(values: list[Any]) -> Any:
    """Concatenate values of the same structure.

    An error fails the whole batch, since each value may be valid on its own; the core then retries each request alone.
    """
    first = values[0]
    for value in values:
        if structure_of(value) != structure_of(first):
            raise hami.RequestError(
                f"CatTensor cannot concatenate {_names(first)} and {_names(value)} in one batch; "
                "all requests must have the same list or dict keys"
            )
    columns = iter(_column(parts) for parts in zip(*(named_parts(value).values() for value in values), strict=True))
    return map_tensors(first, lambda _: next(columns))


def _column(parts: tuple[torch.Tensor, ...]) -> torch.Tensor:
    first = parts[0]
    for tensor in parts:
        if tensor.dtype != first.dtype or tensor.shape[1:] != first.shape[1:]:
            raise hami.RequestError(
                f"CatTensor cannot concatenate {show(first)} and {show(tensor)} in one batch; only axis 0 may differ"
            )
    return concatenated(parts)


def _names(value: Any) -> str:
    return f"[{', '.join(named_parts(value))}]"

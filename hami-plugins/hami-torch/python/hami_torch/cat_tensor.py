"""CatTensor: a batch's tensors as one."""

from __future__ import annotations

from typing import Annotated, Any

import hami

from hami_torch._rows import gathered
from hami_torch._tensor import TensorBackend, as_tensor, data_of, each_tensor, form_of, named_parts, rows_of, show
from hami_torch._torch import torch


class CatTensor(TensorBackend):
    """Gather the tensors of a batch along axis 0; all requests get the same `result`.

    `data`: a tensor on the device, or a list or dict of them; each has as many rows as its request's `request_size`
    says. The core has a backend of this name for the CPU.
    """

    stack: Annotated[bool, "the tensors have no such axis: it is made"] = False

    def run(self, batch: list[Any]) -> None:
        members = self.read(batch, self._rows)
        if not members:
            return
        whole = _gathered([value for _, value in members])
        for item, _ in members:
            self.give(item, whole)

    def _rows(self, item: Any) -> Any:
        data = data_of(item, "CatTensor")
        rows = [self._rows_of(part, item, name) for name, part in named_parts(data).items()]
        each = iter(rows)
        return each_tensor(data, lambda _: next(each))

    def _rows_of(self, part: Any, item: Any, name: str) -> torch.Tensor:
        tensor = self.check(as_tensor(part, "CatTensor"))
        if not self.stack:
            return rows_of(tensor, item, "CatTensor", name)
        if item.get("request_size", 1) != 1:
            raise hami.RequestError(
                f"CatTensor(stack=true) takes requests of one item; request_size is {item['request_size']}"
            )
        return tensor[None]


def _gathered(values: list[Any]) -> Any:
    """Gather values of one form. Each may be right by itself, so errors fail the batch: each is then tried alone."""
    first = values[0]
    for value in values:
        if form_of(value) != form_of(first):
            raise hami.RequestError(
                f"CatTensor cannot gather {_named(first)} and {_named(value)} in one batch; they differ in form"
            )
    columns = iter(_column(parts) for parts in zip(*(named_parts(value).values() for value in values), strict=True))
    return each_tensor(first, lambda _: next(columns))


def _column(parts: tuple[torch.Tensor, ...]) -> torch.Tensor:
    first = parts[0]
    for tensor in parts:
        if tensor.dtype != first.dtype or tensor.shape[1:] != first.shape[1:]:
            raise hami.RequestError(
                f"CatTensor cannot gather {show(first)} and {show(tensor)} in one batch; "
                "they may differ along axis 0 only"
            )
    return gathered(parts)


def _named(value: Any) -> str:
    return f"[{', '.join(named_parts(value))}]"

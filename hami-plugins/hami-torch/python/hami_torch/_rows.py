"""One tensor for a batch, of which each request has some rows: handed on as one, or made one again of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hami

from hami_torch import _streams
from hami_torch._torch import torch


class Rows(Sequence[torch.Tensor]):
    """What hami.scatter is given: views of one tensor, made when somebody looks at one of them.

    `counts` says how many rows each request has, `made_on` which stream's handle the work on the tensor is in order
    with, as _streams.made does for a tensor by itself; 0 outside a guard.
    """

    def __init__(self, whole: torch.Tensor, counts: list[int], made_on: int) -> None:
        self.whole = whole.detach() if whole.requires_grad else whole
        self.counts = counts
        self.made_on = made_on
        self._views: tuple[torch.Tensor, ...] = ()

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, index: Any) -> Any:
        return self.taken_apart()[index]

    def taken_apart(self) -> tuple[torch.Tensor, ...]:
        """Return the views; one call for all, since each lets Python's lock go."""
        if not self._views:
            views = self.whole.split(self.counts)
            if self.made_on:
                for view in views:
                    _streams.made(view, self.made_on)
            self._views = views
        return self._views

    def arrive(self, device: torch.device) -> None:
        """Let the current stream wait for the tensor if it was made outside it."""
        if self.made_on != _streams.current_handle(device):
            _streams.arrive([self.whole], device)

    def leave(self) -> None:
        """Be in order with the default stream from now on."""
        self.made_on = 0
        for view in self._views:
            _streams.forget(view)


def rows_of_batch(batch: list[Any], key: str = "data") -> Rows | None:
    """Return the tensor that the requests of a batch have their rows of, if a backend gave it and nobody looked."""
    rows = hami.scattered(batch, key)
    return rows if isinstance(rows, Rows) else None


def whole_of(parts: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Return the parts as one tensor over the same memory if they are rows of one that follow each other, else None.

    The results of a batch are rows of one tensor: so the backend that takes them next has that again without a copy.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    base, shape, strides, dtype = first._base, first.shape, first.stride(), first.dtype
    if base is None or not shape or dtype.is_complex or base.dtype.is_complex:
        return None  # complex ones may be conjugated, each by itself, which as_strided and the base do not know
    start = at = first.storage_offset()
    rows = 0
    for part in parts:  # of each request of each batch: the order of the questions is that of their price
        if part._base is not base or part.storage_offset() != at or part.dtype != dtype or part.stride() != strides:
            return None
        count = shape[0]
        if part.shape != shape:
            if part.shape[1:] != shape[1:]:
                return None
            count = part.shape[0]
        at += count * strides[0]
        rows += count
    whole = (rows, *shape[1:])
    if base.shape == whole and base.stride() == strides and base.storage_offset() == start and base.dtype == dtype:
        return base  # no operator of torch: each lets Python's lock go, which others wait for
    return first.as_strided(whole, strides, start)


def gathered(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return tensors of one dtype that differ along axis 0 only as one tensor, copied if they are not that already."""
    whole = whole_of(parts)
    return torch.cat(list(parts)) if whole is None else whole

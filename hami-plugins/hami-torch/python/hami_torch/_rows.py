"""From the rows of a tensor back to the whole."""

from __future__ import annotations

from collections.abc import Sequence

from hami_torch._torch import torch


def whole_of(parts: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Return the parts as one tensor over the same memory if they are rows of one that follow each other, else None.

    The results of a batch are rows of one tensor: so the backend that takes them next has that again without a copy.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    base, shape, strides, dtype = first._base, first.shape, first.stride(), first.dtype
    if base is None or not shape:
        return None
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

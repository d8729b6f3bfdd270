"""Rows of a gathered tensor: how many belong to a request, and from rows back to the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hami

from hami_torch._tensor import show
from hami_torch._torch import torch


def size_of(item: Any) -> int:
    """Return how many items a request counts."""
    return int(item.get("request_size", 1))


def rows_of(tensor: torch.Tensor, item: Any, owner: str, name: str = "data") -> torch.Tensor:
    """Return the tensor if it has as many rows along axis 0 as its request counts."""
    size = size_of(item)
    if tensor.ndim == 0 or tensor.shape[0] != size:
        raise hami.RequestError(
            f'{owner}: "{name}" is {show(tensor)}, and request_size is {size}: axis 0 has as many rows as request_size'
        )
    return tensor


def whole_of(parts: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Return the parts as one tensor over the same memory if they are rows of one that follow each other, else None.

    The results of a batch are rows of one tensor: so the backend that takes them next has that again without a copy.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    base, strides, shape = first._base, first.stride(), first.shape[1:]
    if base is None:
        return None
    start = at = first.storage_offset()
    for part in parts:
        if (
            part._base is not base
            or part.storage_offset() != at
            or part.stride() != strides
            or part.shape[1:] != shape
            or part.dtype != first.dtype
        ):
            return None
        at += part.shape[0] * strides[0]
    rows = sum(part.shape[0] for part in parts)
    return first.as_strided((rows, *shape), strides, start)


def gathered(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return tensors of one dtype that differ along axis 0 only as one tensor, copied if they are not that already."""
    whole = whole_of(parts)
    return torch.cat(list(parts)) if whole is None else whole

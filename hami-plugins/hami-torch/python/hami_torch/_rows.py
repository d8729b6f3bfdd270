"""How many rows of a gathered tensor belong to a request."""

from __future__ import annotations

from typing import Any

import hami

from hami_torch._tensor import show
from hami_torch._torch import torch


def size_of(item: Any) -> int:
    """Return how many items a request counts."""
    return int(item["request_size"]) if "request_size" in item else 1


def rows_of(tensor: torch.Tensor, item: Any, owner: str, name: str = "data") -> torch.Tensor:
    """Return the tensor if it has as many rows along axis 0 as its request counts."""
    size = size_of(item)
    if tensor.ndim == 0 or len(tensor) != size:
        raise hami.RequestError(
            f'{owner}: "{name}" is {show(tensor)}, and request_size is {size}: axis 0 has as many rows as request_size'
        )
    return tensor

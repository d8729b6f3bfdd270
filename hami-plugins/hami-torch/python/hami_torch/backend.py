"""Public base for backends in other packages: the device, tensors on it, and the order of CUDA streams.

Derive from TensorBackend and implement `run(batch)`: read requests with `read`, answer them with `give`. All other
modules of this package are private.
"""

from __future__ import annotations

from hami_torch._device import as_current, device_of, empty_cache
from hami_torch._tensor import (
    TensorBackend,
    as_tensor,
    data_of,
    dtype_name,
    map_tensors,
    named_parts,
    rows_of,
    show,
    structure_of,
    tensors_of,
)
from hami_torch._torch import torch

__all__ = [
    "TensorBackend",
    "as_current",
    "as_tensor",
    "data_of",
    "device_of",
    "dtype_name",
    "empty_cache",
    "map_tensors",
    "named_parts",
    "rows_of",
    "show",
    "structure_of",
    "tensors_of",
    "torch",
]

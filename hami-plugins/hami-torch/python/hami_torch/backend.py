"""What backends of other packages may build on: a device, tensors on it, and the streams that they are in order with.

TensorBackend is the base: its `run(batch)` reads with `read` and answers with `give`. `devices` are the kinds of device
that a class works on, `torch_device` is the one of this instance. A batch that runs out of memory on the device fails
with MemoryError, and what it held is given back. Other files of this package are its own and may change.
"""

from __future__ import annotations

from hami_torch._device import as_current, device_of, empty_cache
from hami_torch._tensor import (
    TensorBackend,
    as_tensor,
    data_of,
    dtype_name,
    each_tensor,
    flat,
    form_of,
    named_parts,
    rows_of,
    show,
)
from hami_torch._torch import torch

__all__ = [
    "TensorBackend",
    "as_current",
    "as_tensor",
    "data_of",
    "device_of",
    "dtype_name",
    "each_tensor",
    "empty_cache",
    "flat",
    "form_of",
    "named_parts",
    "rows_of",
    "show",
    "torch",
]

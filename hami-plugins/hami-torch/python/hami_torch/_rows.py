"""Keep the results of a batch in one tensor, so that the next backend takes them without concatenating them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hami

from hami_torch import _streams
from hami_torch._torch import torch, torch_untyped
from hami_torch._types import Batch


class Rows(Sequence[torch.Tensor]):
    """The rows of each request in one tensor, for `scatter`; the parts are made when a request's rows are read.

    A part owns its memory, as `own_rows` says. The next backend gets the whole tensor, without parts.

    `counts` is the number of rows of each request. `stream_handle` is the stream that the tensor was made on, as
    _streams.mark_stream notes it for a single tensor; 0 outside a guard.
    """

    def __init__(self, tensor: torch.Tensor, counts: list[int], stream_handle: int) -> None:
        self.tensor = tensor.detach() if tensor.requires_grad else tensor
        self.counts = counts
        self.stream_handle = stream_handle
        self._parts: tuple[torch.Tensor, ...] = ()

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, index: Any) -> Any:
        return self.parts()[index]

    def parts(self) -> tuple[torch.Tensor, ...]:
        """Return the rows of each request, copied on the stream that the tensor is ordered with."""
        if not self._parts:
            with _streams.use_stream_of(self.tensor.device, self.stream_handle):
                parts = own_rows(self.tensor, self.counts)
            if self.stream_handle:
                for part in parts:
                    _streams.mark_stream(part, self.stream_handle)
            self._parts = parts
        return self._parts

    def wait_for_inputs(self, device: torch.device) -> None:
        """Make the current stream wait for the tensor if it was made on another stream."""
        if self.stream_handle != _streams.current_handle(device):
            _streams.wait_for_inputs([self.tensor], device)

    def clear_stream_mark(self) -> None:
        """Note that the tensor is ordered with the default stream from now on."""
        self.stream_handle = 0
        for part in self._parts:
            _streams.clear_stream_mark(part)


def rows_of_batch(batch: Batch, key: str = "data") -> Rows | None:
    """Return the Rows that a backend scattered over this batch; None if there are none or one request's were read."""
    rows = hami.batching.scattered(batch, key)
    return rows if isinstance(rows, Rows) else None


def own_rows(tensor: torch.Tensor, counts: list[int]) -> tuple[torch.Tensor, ...]:
    """Return the rows of each request: copies, or views of at least half of the memory.

    A kept row then keeps little more than itself. One call makes all copies if it can, because each call into torch
    releases the GIL.
    """
    if 2 * max(counts) < sum(counts) and tensor.is_contiguous():
        return tuple(torch_untyped.split_with_sizes_copy(tensor, counts))
    return tuple(owned(part) for part in torch.split(tensor, counts))


def owned(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, or a copy if it is less than half of the memory that it keeps."""
    if tensor.layout != torch.strided or 2 * tensor.nbytes >= tensor.untyped_storage().nbytes():
        return tensor
    return tensor.clone()


def merged(parts: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Return one tensor over the memory of all parts if they are consecutive rows of the same tensor, else None.

    Rows that a caller or a backend made by slicing one tensor are such parts.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    base, shape, strides, dtype = first._base, first.shape, first.stride(), first.dtype
    if base is None or not shape or dtype.is_complex or base.dtype.is_complex:
        return None  # each complex view may be conjugated on its own, which as_strided and the base do not reflect
    start = offset = first.storage_offset()
    total = 0
    for part in parts:  # runs for every request of every batch: the cheapest conditions come first
        if part._base is not base or part.storage_offset() != offset or part.dtype != dtype or part.stride() != strides:
            return None
        count = shape[0]
        if part.shape != shape:
            if part.shape[1:] != shape[1:]:
                return None
            count = part.shape[0]
        offset += count * strides[0]
        total += count
    merged_shape = (total, *shape[1:])
    if (
        base.shape == merged_shape
        and base.stride() == strides
        and base.storage_offset() == start
        and base.dtype == dtype
    ):
        return base  # without an operator of torch, which would release the GIL
    return first.as_strided(merged_shape, strides, start)


def concatenated(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Concatenate tensors along axis 0; they share a dtype and their other sizes. Copies only if `merged` cannot."""
    whole = merged(parts)
    return torch.cat(list(parts)) if whole is None else whole

"""CpuTensor: copy tensors to CPU memory; the CPU waits once for a batch."""

from __future__ import annotations

from typing import Any

import hami
from hami.batching import group_requests

from hami_torch._rows import Rows, rows_of_batch
from hami_torch._streams import current_stream, wait_for_inputs
from hami_torch._tensor import as_tensor, data_of, map_tensors, tensors_of
from hami_torch._torch import torch
from hami_torch._types import Batch, Request


class CpuTensor(hami.Backend):
    """Copy `data`, a tensor or a list or dict of tensors, to CPU memory; tensors that are there pass unchanged.

    Shape and dtype stay. All copies of a batch run together, and the CPU waits for them once. The result is a torch
    tensor; hami.to_numpy(result) is a NumPy array over the same memory. A batch that is one tensor is copied once, into
    pinned memory, and each result owns a copy of its rows.
    """

    max = "auto"
    thread = "concurrent"
    lightweight = True

    def forward(self, batch: Batch) -> None:
        rows = rows_of_batch(batch)
        if rows is None:
            self._copy_each(batch)
            return
        device = rows.tensor.device
        if rows.tensor.is_cuda:
            rows.wait_for_inputs(device)
        hami.batching.scatter(batch, Rows(_to_cpu(rows.tensor), rows.counts, stream_handle=0))
        if rows.tensor.is_cuda:
            current_stream(device).synchronize()

    def _copy_each(self, batch: Batch) -> None:
        found = [pair for group in group_requests(batch, _tensors) for pair in zip(*group, strict=True)]
        tensors = [tensor for _, value in found for tensor in tensors_of(value)]
        devices = {tensor.device for tensor in tensors if tensor.is_cuda}
        for device in devices:
            wait_for_inputs([tensor for tensor in tensors if tensor.device == device], device)
        for item, value in found:
            item["result"] = map_tensors(value, _to_cpu)
        for device in devices:
            current_stream(device).synchronize()


def _tensors(item: Request) -> Any:
    return map_tensors(data_of(item, "CpuTensor"), lambda part: as_tensor(part, "CpuTensor"))


def _to_cpu(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.detach() if tensor.requires_grad else tensor).to("cpu", non_blocking=True)

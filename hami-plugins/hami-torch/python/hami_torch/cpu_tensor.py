"""CpuTensor: off the device; here the CPU waits, once for a batch."""

from __future__ import annotations

from typing import Any

import hami

from hami_torch._rows import Rows, rows_of_batch
from hami_torch._streams import arrive, current
from hami_torch._tensor import as_tensor, data_of, each_tensor, flat, without_frames
from hami_torch._torch import torch


class CpuTensor(hami.Backend):
    """Move `data`, a tensor or a list or dict of them, to CPU memory; what is there already stays as it is.

    The copies of a batch run together and are waited for once. They are torch's tensors, in pinned memory;
    hami.to_numpy(result) is an array over the same memory. The results of a batch that was one tensor are rows of one
    copy: who keeps one of them for long keeps that.
    """

    thread = "concurrent"

    def forward(self, batch: list[Any]) -> None:
        rows = rows_of_batch(batch)
        if rows is None:
            self._each(batch)
            return
        device = rows.whole.device
        if rows.whole.is_cuda:
            rows.arrive(device)
        hami.scatter(batch, Rows(_to_cpu(rows.whole), rows.counts, made_on=0))
        if rows.whole.is_cuda:
            current(device).synchronize()

    def _each(self, batch: list[Any]) -> None:
        found = []
        for item in batch:
            try:
                found.append((item, each_tensor(data_of(item, "CpuTensor"), lambda part: as_tensor(part, "CpuTensor"))))
            except hami.Error as error:
                item.fail(without_frames(error))
        tensors = [tensor for _, value in found for tensor in flat(value)]
        devices = {tensor.device for tensor in tensors if tensor.is_cuda}
        for device in devices:
            arrive([tensor for tensor in tensors if tensor.device == device], device)
        for item, value in found:
            item["result"] = each_tensor(value, _to_cpu)
        for device in devices:
            current(device).synchronize()


def _to_cpu(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.detach() if tensor.requires_grad else tensor).to("cpu", non_blocking=True)

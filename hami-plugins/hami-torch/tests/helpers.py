"""Shared by several test files: the first line of an error message, and small modules with known results."""

from __future__ import annotations

import threading
from typing import Any

import hami
import torch


def message(raised: Any) -> str:
    """Return the first line of the raised exception's message, without notes and position."""
    return str(raised.value).splitlines()[0]


class Double(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Clone(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clone()


class SumAndDifference(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"total": a + b, "rest": a - b}


class Scaled(torch.nn.Module):
    """x * weight + bias; the weight is 3 unless another one is loaded."""

    def __init__(self, bias: float = 0.0) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(3.0))
        self.bias = bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight + self.bias


class RepeatsFirstRow(torch.nn.Module):
    """Returns the first row in place of each row, all in the same memory."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x[:1] * 2).expand(len(x), -1)


class ReusesOutputBuffer(torch.nn.Module):
    """Returns x * 2, in the same memory each time."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if getattr(self, "buffer", x[:0]).shape != x.shape:
            self.buffer = torch.empty_like(x)
        return torch.mul(x, 2, out=self.buffer)


class CountsInPlace(torch.nn.Module):
    """Returns x * 2, counts its runs in a tensor of its own, and fails if two of them overlap."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = torch.zeros(())
        self.alone = threading.Lock()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.alone.acquire(blocking=False):
            raise RuntimeError("two runs overlap")
        try:
            self.runs += torch.ones(256, 256).matmul(torch.ones(256, 256)).sign().mean()
            return x * 2
        finally:
            self.alone.release()


class TableLookup(torch.nn.Module):
    """Returns row `x` of a table of three rows; an index of 3 makes the whole run fail."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(6.0).reshape(3, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.table[x]


class PositiveElements(torch.nn.Module):
    """Returns the elements above zero; their number varies, so the output cannot be split by request."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 0]


class RunsOutOfMemory(torch.nn.Module):
    """Raises the out-of-memory error of CUDA if a row has the value 13."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (x == 13).any():
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return x


class AddsInPlace(torch.nn.Module):
    """Modifies its input. Fails if a row is 13; returns one sum for all rows if the first is 7."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = x[0].item()
        x.add_(1)
        if (x == 14).any():
            raise RuntimeError("13 is wrong")
        return x.sum() if first == 7 else x * 2


class AddsInPlaceBelow20(AddsInPlace):
    """Modifies its input only if the first row is below 20."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) if x[0] < 20 else (x + 1) * 2


class CachesAnchors(torch.nn.Module):
    """Adds its column index to each element; caches the indexes for the last shape, as detectors cache anchors."""

    anchors: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.anchors is None or self.anchors.shape != x.shape:
            self.anchors = torch.arange(float(x.shape[-1]), device=x.device).expand_as(x).contiguous()
        return x + self.anchors


class DoublesInPlace(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)


class CountsRows(torch.nn.Module):
    """Returns the number of rows of the run in each element."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.full_like(x, len(x))


class ReturnsItsWeight(torch.nn.Module):
    def __init__(self, kind: str = "parameter") -> None:
        super().__init__()
        weight = torch.ones(2, 2)
        if kind == "buffer":
            self.register_buffer("weight", weight)
        else:
            self.weight = torch.nn.Parameter(weight, requires_grad=kind != "frozen")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight[1:]


class OpensAnotherPipe(torch.nn.Module):
    """Opens and calls another pipe in its constructor."""

    def __init__(self) -> None:
        super().__init__()
        with hami.pipe({"backend": "TorchModel", "factory": "helpers:Double", "device": "cpu"}) as pipe:
            self.factor = pipe({"data": torch.ones(1, 1)})["result"].item()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


def returns_text() -> str:
    return "not a module"

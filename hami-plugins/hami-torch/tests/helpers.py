"""What several test files need: a message's first line, and modules with weights that can be read off."""

from __future__ import annotations

from typing import Any

import hami
import torch


def message(raised: Any) -> str:
    """Return what the raised exception says, without the notes and the place."""
    return str(raised.value).splitlines()[0]


class Double(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Same(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clone()


class SumAndDifference(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"total": a + b, "rest": a - b}


class Scaled(torch.nn.Module):
    """x * weight; the weight is 3 until it is loaded."""

    def __init__(self, bias: float = 0.0) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(3.0))
        self.bias = bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight + self.bias


class GivesOneRow(torch.nn.Module):
    """The first row, in place of each."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x[:1] * 2).expand(len(x), -1)


class WritesToItsOwn(torch.nn.Module):
    """x * 2, and every time in the same memory."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if getattr(self, "kept", x[:0]).shape != x.shape:
            self.kept = torch.empty_like(x)
        return torch.mul(x, 2, out=self.kept)


class Picks(torch.nn.Module):
    """Row `x` of a table of three: an index of 3 makes the whole run fail."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(6.0).reshape(3, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.table[x]


class Positives(torch.nn.Module):
    """The elements above zero: as many as there are such, which no split can tell apart."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 0]


class OutOfMemory(torch.nn.Module):
    """Fails as CUDA does where a row has the value 13."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (x == 13).any():
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return x


class AddsInPlace(torch.nn.Module):
    """Writes to its input, and fails where a row is 13; where the first is 7 it gives a sum for all."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = x[0].item()
        x.add_(1)
        if (x == 14).any():
            raise RuntimeError("13 is wrong")
        return x.sum() if first == 7 else x * 2


class AddsInPlaceBelow(AddsInPlace):
    """Does so where the first row is below 20, as data may decide."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) if x[0] < 20 else (x + 1) * 2


class Anchored(torch.nn.Module):
    """Adds the number of its column to each element; keeps these for each shape, as detectors keep their anchors."""

    anchors: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.anchors is None or self.anchors.shape != x.shape:
            self.anchors = torch.arange(float(x.shape[-1]), device=x.device).expand_as(x).contiguous()
        return x + self.anchors


class DoublesInPlace(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)


class CountsRows(torch.nn.Module):
    """Tells each row with how many others it ran."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.full_like(x, len(x))


class GivesItsWeight(torch.nn.Module):
    def __init__(self, kind: str = "parameter") -> None:
        super().__init__()
        weight = torch.ones(2, 2)
        if kind == "buffer":
            self.register_buffer("weight", weight)
        else:
            self.weight = torch.nn.Parameter(weight, requires_grad=kind != "frozen")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight[1:]


class Opens(torch.nn.Module):
    """Runs another program while it is made."""

    def __init__(self) -> None:
        super().__init__()
        with hami.pipe({"backend": "TorchModel", "factory": "helpers:Double", "device": "cpu"}) as pipe:
            self.factor = pipe({"data": torch.ones(1, 1)})["result"].item()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


def no_module() -> str:
    return "nothing to run"

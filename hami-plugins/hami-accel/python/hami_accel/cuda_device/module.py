"""TorchModel: a model as pieces that run one after the other on the current CUDA stream."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import hami
import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]

from hami_accel.device import LoadOptions

Piece = Callable[..., Any]


@dataclass(frozen=True)
class TorchModel:
    """A model for the device `cuda`.

    Args:
        pieces: a `torch.nn.Module`, or callables. The first one gets the inputs, each other one what the piece before
            it returned: a tensor, or a tuple of tensors. The work must be on `torch.cuda.current_stream()`. The last
            one returns the outputs. A `torch.nn.Sequential` is one piece per module.
        inputs: an array of the type and shape of each input, by name, in the order of the arguments.
        outputs: names of the outputs; by default `output_0`, `output_1`, …
        name: of the model.
    """

    pieces: Any
    inputs: Mapping[str, Any]
    outputs: Sequence[str] = ()
    name: str = field(default="torch")

    def list_pieces(self) -> list[Any]:
        """Return the smallest pieces."""
        if isinstance(self.pieces, torch.nn.Module):
            found: list[Any] = list(_modules(self.pieces))
        elif callable(self.pieces):
            found = [self.pieces]
        else:
            found = list(self.pieces)
        if not found or not all(callable(piece) for piece in found):
            raise hami.ConfigError(
                f"cuda: {self.name}: pieces must be a torch.nn.Module or callables, got {self.pieces!r}"
            )
        return found


def _modules(module: Any) -> Iterator[Piece]:
    """Yield the modules of nested Sequentials; other modules are not cut, because their graph is not known."""
    if type(module) is torch.nn.Sequential:
        for child in module:
            yield from _modules(child)
    else:
        yield module


def model_of(source: Any, options: LoadOptions) -> TorchModel:
    """Return the model of what the caller passed to AccelModel."""
    if isinstance(source, TorchModel):
        return source
    if isinstance(source, torch.nn.Module):
        return TorchModel(source, _examples(options, type(source).__name__), name=type(source).__name__)
    if not isinstance(source, (str, os.PathLike)):
        raise hami.ConfigError(
            f"cuda: takes a TorchModel, a torch.nn.Module or the path of a .pt2 or TorchScript file, got "
            f"{type(source).__name__}"
        )
    path = os.fspath(source)
    try:
        module = torch.export.load(path).module() if path.endswith(".pt2") else torch.jit.load(path, map_location="cpu")
    except Exception as error:  # torch raises many types for files that are missing or damaged
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise hami.ConfigError(f'cuda: cannot load "{path}": {reason}') from error
    return TorchModel(module, _examples(options, path), name=os.path.basename(path))


def _examples(options: LoadOptions, name: str) -> dict[str, Any]:
    if not options.shapes:
        raise hami.ConfigError(
            f'cuda: PyTorch does not know the inputs of "{name}"; pass their shapes in the order of the arguments, for '
            'example shapes={"x": [1, 3, 224, 224]}, or a TorchModel for other types than float32'
        )
    return {key: np.zeros(tuple(shape), np.float32) for key, shape in options.shapes.items()}


def group(seconds: Sequence[float], limit_s: float) -> list[list[int]]:
    """Return the numbers of neighbouring pieces together, up to `limit_s` of their time; 0: all together."""
    groups: list[list[int]] = [[]]
    elapsed = 0.0
    for number, one in enumerate(seconds):
        if groups[-1] and limit_s and elapsed + one > limit_s:
            groups.append([])
            elapsed = 0.0
        groups[-1].append(number)
        elapsed += one
    return groups

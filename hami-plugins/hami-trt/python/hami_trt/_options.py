"""What a user says of an engine that is to be built: parameters of Onnx2Tensorrt, options of `hami compile`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hami

from hami_trt._tensorrt import Library

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "int8")


@dataclass(frozen=True)
class Options:
    """Checked as far as can be without the model; what is wrong raises hami.ConfigError, named after `owner`."""

    model: Path
    library: Library
    owner: str
    max: str | None = None
    min: str | None = None
    opt: str | None = None
    profiles: int = 1
    precision: str | None = None
    mean: Sequence[float] = ()
    std: Sequence[float] = ()
    workspace: int | None = None
    optimization_level: int | None = None
    version_compatible: bool = False
    hardware_compatible: str | None = None
    compute_capability: Sequence[str] = ()
    timing_cache: Path | None = None
    device: Any = None  # torch's, which the library builds on; None where it needs none
    ready: hami.Event | None = None  # of the node that is made; if it fails first, nobody waits for the engine any more

    def __post_init__(self) -> None:
        if not self.model.is_file():
            raise hami.ConfigError(
                f'{self.owner}: there is no model file "{self.model}" (looked for {self.model.resolve()})'
            )
        if self.profiles < 1:
            raise hami.ConfigError(f'{self.owner}: "instance_num" is 1 or more, got {self.profiles}')
        if self.optimization_level is not None and not 0 <= self.optimization_level <= 5:
            raise hami.ConfigError(
                f'{self.owner}: "optimization_level" is 0 (quick) to 5, got {self.optimization_level}'
            )
        for name in ("max", "min", "opt"):
            text = getattr(self, name)
            object.__setattr__(self, name, "".join(text.split()) if text else None)
        for name in ("mean", "std"):
            object.__setattr__(self, name, self._numbers(name))
        if self.mean and self.std and len(self.mean) != len(self.std) and 1 not in (len(self.mean), len(self.std)):
            raise hami.ConfigError(
                f'{self.owner}: "mean" has {len(self.mean)} numbers, "std" has {len(self.std)}; one for each channel'
            )
        if any(value == 0 for value in self.std):
            raise hami.ConfigError(f'{self.owner}: "std" divides, so none of it may be 0, got {list(self.std)}')
        self.library.check_compute_capabilities(self.compute_capability, self.owner)

    def _numbers(self, name: str) -> tuple[float, ...]:
        values = getattr(self, name)
        try:
            numbers = tuple(float(value) for value in values)
        except (TypeError, ValueError):
            numbers = (math.nan,)
        if not all(map(math.isfinite, numbers)):
            raise hami.ConfigError(f'{self.owner}: "{name}" is a list of numbers, got {list(values)}')
        return numbers

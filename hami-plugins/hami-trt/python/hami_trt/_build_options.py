"""The options of a build: parameters of Onnx2Tensorrt, options of `hami compile`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import hami
from hami_tensor import Device

from hami_trt._tensorrt import Library

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "int8")
MAX_OPTIMIZATION_LEVEL = 5


@dataclass(frozen=True)
class BuildOptions:
    """Options that are checked as far as possible without the model.

    Raises:
        hami.ConfigError: an option is wrong; the message starts with `owner`.
    """

    model: Path
    library: Library
    owner: str
    max: str | None = None
    min: str | None = None
    opt: str | None = None
    profiles: int = 1
    precision: str | None = None
    mean: Sequence[float] | Sequence[str] = ()
    std: Sequence[float] | Sequence[str] = ()
    workspace: int | None = None
    optimization_level: int | None = None
    version_compatible: bool = False
    hardware_compatible: str | None = None
    compute_capability: Sequence[str] = ()
    timing_cache: Path | None = None
    device: Device | None = None  # the GPU to build on; None if the library needs none
    graph_limits: Mapping[str, int] = field(default_factory=dict)  # of hami_model_check.onnx.read_onnx
    init_event: hami.Event | None = None  # of the node; if it fails during the build, the build stops

    def __post_init__(self) -> None:
        if not self.model.is_file():
            raise hami.ConfigError(
                f'{self.owner}: model file "{self.model}" does not exist (looked for {self.model.resolve()})'
            )
        if self.profiles < 1:
            raise hami.ConfigError(f'{self.owner}: "instance_num" must be 1 or more, got {self.profiles}')
        if self.optimization_level is not None and not 0 <= self.optimization_level <= MAX_OPTIMIZATION_LEVEL:
            raise hami.ConfigError(
                f'{self.owner}: "optimization_level" must be 0 to {MAX_OPTIMIZATION_LEVEL}, '
                f"got {self.optimization_level}"
            )
        for name in ("max", "min", "opt"):
            text = getattr(self, name)
            object.__setattr__(self, name, "".join(text.split()) if text else None)
        mean, std = self._numbers("mean"), self._numbers("std")
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "std", std)
        if mean and std and len(mean) != len(std) and 1 not in (len(mean), len(std)):
            raise hami.ConfigError(
                f'{self.owner}: "mean" has {len(mean)} values and "std" has {len(std)}; give both one value per '
                "channel, or one value for all channels"
            )
        if 0 in std:
            raise hami.ConfigError(f'{self.owner}: "std" must not contain 0, got {list(std)}')
        self.library.check_compute_capabilities(self.compute_capability, self.owner)

    def _numbers(self, name: str) -> tuple[float, ...]:
        values = getattr(self, name)
        try:
            numbers = tuple(float(value) for value in values)
        except (TypeError, ValueError):
            numbers = (math.nan,)
        if not all(map(math.isfinite, numbers)):
            raise hami.ConfigError(f'{self.owner}: "{name}" must be a list of finite numbers, got {list(values)}')
        return numbers

"""SimModel: a model of the simulator."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hami
import numpy as np

from hami_accel.specs import Quantization, TensorSpec

__all__ = ["SimModel"]


def _vector(name: str) -> list[TensorSpec]:
    return [TensorSpec(name, np.dtype(np.float32), (1, 4))]


@dataclass(frozen=True)
class SimModel:
    """A model of the simulator. Its output is a function of the input and of the order of its function-calls.

    >>> SimModel("net", calls_us=[100, 200]).expected_us
    300
    """

    name: str = "sim"
    calls_us: Sequence[float] = (100.0,)  # duration of each function-call, microseconds
    inputs: Sequence[TensorSpec] = field(default_factory=lambda: _vector("x"))
    outputs: Sequence[TensorSpec] = field(default_factory=lambda: _vector("y"))

    @property
    def expected_us(self) -> float:
        return sum(self.calls_us)

    def reference(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs that a task has, preempted or not."""
        state = self.begin(inputs)
        for segment in range(len(self.calls_us)):
            state = self.advance(state, segment)
        return self.end(state)

    def begin(self, inputs: Mapping[str, Any]) -> Any:
        return np.concatenate([np.asarray(inputs[spec.name], np.float64).ravel() for spec in self.inputs])

    def advance(self, state: Any, segment: int) -> Any:
        return state * 0.5 + (segment + 1)

    def end(self, state: Any) -> dict[str, Any]:
        result = {}
        for spec in self.outputs:
            values = np.resize(state, spec.shape)
            whole = spec.dtype.kind in "iu"
            result[spec.name] = spec.quantize(values) if whole else values.astype(spec.dtype)
        return result

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> list[SimModel]:
        """Read the models of a JSON file: {"models": [{"name", "calls_us", "inputs", "outputs"}, …]}."""
        try:
            entries = json.loads(Path(path).read_text("utf-8"))["models"]
            return [_model_of(entry) for entry in entries]
        except OSError as error:
            raise hami.ConfigError(f'sim: "{os.fspath(path)}" cannot be read: {error.strerror}') from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise hami.ConfigError(
                f'sim: "{os.fspath(path)}" is not a JSON file of simulated models, '
                f'{{"models": [{{"name": …, "calls_us": […]}}]}}: {error!r}'
            ) from error


def _model_of(entry: Mapping[str, Any]) -> SimModel:
    given: dict[str, Any] = {
        key: [_spec_of(spec) for spec in entry[key]] for key in ("inputs", "outputs") if key in entry
    }
    if "calls_us" in entry:
        given["calls_us"] = [float(value) for value in entry["calls_us"]]
    return SimModel(str(entry["name"]), **given)


def _spec_of(entry: Mapping[str, Any]) -> TensorSpec:
    scale = entry.get("scale")
    quantization = None if scale is None else Quantization(float(scale), int(entry.get("zero_point", 0)))
    shape = tuple(int(size) for size in entry["shape"])
    return TensorSpec(entry["name"], np.dtype(entry["dtype"]), shape, entry.get("layout", ""), quantization)

"""HbmDevice: packed models on a BPU of D-Robotics (Horizon), through the module hbm_runtime. Never run on hardware."""

from __future__ import annotations

import os
from typing import Any

import hami
import hbm_runtime  # type: ignore[import-not-found,unused-ignore]
import numpy as np

from hami_accel.device import Buffers, Call, Capabilities, Device, DeviceModel, LoadOptions, model_number
from hami_accel.errors import DeviceError
from hami_accel.specs import Quantization, TensorSpec
from hami_accel.task import HIGH_PRIORITY

_CORES = 4  # of the largest BPU; a board with fewer rejects a core that it does not have
_PREEMPTS = 255  # the largest priority of set_scheduling_params; from 254 on, a task preempts there too


class HbmDevice(Device):
    """The BPU preempts by priority itself, so the engine gives a core one task per level, and does not abort.

    hbm_runtime keeps the priority of a model, not of a task: of the tasks of one model that run at the same time, the
    last one that was started sets it.
    """

    name = "hbm"
    capabilities = Capabilities(cores=_CORES, native_preempt=True, priority_levels=256, quantised=True)

    def describe(self) -> dict[str, Any]:
        return {"hbm_runtime": getattr(hbm_runtime, "__version__", "unknown")}

    def load(self, source: Any, options: LoadOptions) -> DeviceModel:
        if not isinstance(source, (str, os.PathLike)):
            raise hami.ConfigError(f"hbm: takes the path of a .hbm file, got {type(source).__name__}")
        try:
            runtime = hbm_runtime.HB_HBMRuntime(os.fspath(source))
        except RuntimeError as error:
            raise hami.ConfigError(f'hbm: cannot load "{os.fspath(source)}": {error}') from error
        names = list(runtime.model_names)
        selected = model_number(options.select, names, self.name)
        return _Model(runtime, names, selected)


class _Model(DeviceModel):
    def __init__(self, runtime: Any, names: list[str], selected: int) -> None:
        self.runtime: Any = runtime
        self.name, self.names, self.selected = names[selected], names, selected
        self.inputs = _specs(runtime, "input", self.name)
        self.outputs = _specs(runtime, "output", self.name)

    def submit(self, buffers: Buffers, segment: int, core: int, priority: int) -> Call:
        return _Call(self, buffers, core, priority)

    def close(self) -> None:
        self.runtime = None


class _Call(Call):
    """A task that runs on the thread that waits for it: the module has no asynchronous call."""

    def __init__(self, model: _Model, buffers: Buffers, core: int, priority: int) -> None:
        self._model, self._buffers, self._core, self._priority = model, buffers, core, priority
        self._ended = False

    def query(self) -> bool:
        return self._ended

    def wait(self, timeout: float | None) -> bool:
        del timeout  # run has none
        model, runtime = self._model, self._model.runtime
        try:
            runtime.set_scheduling_params(
                priority={model.name: self._priority if self._priority < HIGH_PRIORITY else _PREEMPTS},
                bpu_cores={model.name: [self._core]},
            )
            results = runtime.run(dict(self._buffers.inputs), model_name=model.name)[model.name]
        except RuntimeError as error:
            code = next((part for part in error.args if isinstance(part, int)), -1)
            raise DeviceError(f"{model.name}: hbm_runtime: {error}", code) from error
        finally:
            self._ended = True
        for name, array in self._buffers.outputs.items():
            np.copyto(array, results[name])
        return True


def _specs(runtime: Any, direction: str, model: str) -> list[TensorSpec]:
    names, shapes, dtypes, quants = (
        getattr(runtime, f"{direction}_{what}")[model] for what in ("names", "shapes", "dtypes", "quants")
    )
    return [
        TensorSpec(name, _dtype(dtypes[name]), tuple(shapes[name]), quantization=_quantization(quants.get(name)))
        for name in names
    ]


def _quantization(info: Any) -> Quantization | None:
    """Return the scale of a whole tensor; None for a tensor without one, or with one per channel."""
    scales, zero_points = (np.ravel(getattr(info, what, ())) for what in ("scale", "zero_point"))
    if scales.size != 1:
        return None
    return Quantization(float(scales[0]), int(zero_points[0]) if zero_points.size else 0)


def _dtype(kind: Any) -> np.dtype[Any]:
    """Return the NumPy type of a member of hbDNNDataType, whose names are those of NumPy in capitals."""
    return np.dtype(str(getattr(kind, "name", kind)).lower())

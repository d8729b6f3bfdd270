"""HbmDevice: packed models on a BPU of D-Robotics (Horizon), through the module hbm_runtime. Never run on hardware."""

from __future__ import annotations

import os
from typing import Any

import hami
import hbm_runtime  # type: ignore[import-not-found,unused-ignore]
import numpy as np

from hami_accel.device import Buffers, Call, Capabilities, Device, DeviceModel, LoadOptions
from hami_accel.errors import DeviceError
from hami_accel.specs import TensorSpec
from hami_accel.vendors.priorities import SCALES

_CORES = 4  # of the largest BPU; a board with fewer rejects a core that it does not have


class HbmDevice(Device):
    """The BPU preempts by priority itself, so the engine passes the priority of a task and does not abort."""

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
        selected = names.index(options.select) if options.select in names else options.select
        if not isinstance(selected, int) or not 0 <= selected < len(names):
            raise hami.ConfigError(
                f"hbm: select must be 0 to {len(names) - 1} or one of {names}, got {options.select!r}"
            )
        return _Model(runtime, names, selected)


class _Model(DeviceModel):
    def __init__(self, runtime: Any, names: list[str], selected: int) -> None:
        self.runtime: Any = runtime
        self.name, self.names, self.selected = names[selected], names, selected
        self.inputs = _specs(runtime.input_names, runtime.input_shapes, runtime.input_dtypes, self.name)
        self.outputs = _specs(runtime.output_names, runtime.output_shapes, runtime.output_dtypes, self.name)

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
                priority={model.name: SCALES["hbm"].of(self._priority)}, bpu_cores={model.name: [self._core]}
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


def _specs(names: Any, shapes: Any, dtypes: Any, model: str) -> list[TensorSpec]:
    return [TensorSpec(name, _dtype(dtypes[model][name]), tuple(shapes[model][name])) for name in names[model]]


def _dtype(kind: Any) -> np.dtype[Any]:
    """Return the NumPy type of a member of hbDNNDataType, whose names are those of NumPy in capitals."""
    return np.dtype(str(getattr(kind, "name", kind)).lower())

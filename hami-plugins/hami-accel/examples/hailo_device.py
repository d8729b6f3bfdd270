"""An example of a device: compiled models (.hef) on an accelerator of Hailo, through HailoRT's module.

Written from the manual of HailoRT and never run on hardware: before you rely on it, run
`hami_accel.testing.check_device`.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

import hailo_platform
import hami
import numpy as np
from hailo_platform.pyhailort.pyhailort import HailoRTTimeout

from hami_accel.device import Buffers, Call, Capabilities, Device, DeviceModel, LoadOptions, model_number
from hami_accel.errors import DeviceError
from hami_accel.specs import Quantization, TensorSpec

_NEVER_MS = 2**31 - 1  # HailoRT has no waiting without a limit
_HIGHEST = 31  # HAILO_SCHEDULER_PRIORITY_MAX; the lowest is 0


class HailoDevice(Device):
    """HailoRT chooses between models by priority, but finishes a frame that it has begun, and cannot abort one."""

    name = "hailo"
    capabilities = Capabilities(priority_levels=32, zero_copy=True, quantised=True)

    def __init__(self) -> None:
        params = hailo_platform.VDevice.create_params()
        params.scheduling_algorithm = hailo_platform.HailoSchedulingAlgorithm.ROUND_ROBIN  # priorities need it
        try:
            self._device: Any = hailo_platform.VDevice(params)
        except hailo_platform.HailoRTException as error:
            raise hami.ConfigError(f"hailo: no accelerator can be opened: {error}") from error

    def describe(self) -> dict[str, Any]:
        return {"hailo_platform": getattr(hailo_platform, "__version__", "unknown")}

    def load(self, source: Any, options: LoadOptions) -> DeviceModel:
        if not isinstance(source, (str, os.PathLike)):
            raise hami.ConfigError(f"hailo: takes the path of a .hef file, got {type(source).__name__}")
        name = os.path.basename(source)
        model_number(options.select, [name], self.name)
        try:
            return _Model(self._device.create_infer_model(os.fspath(source)), name)
        except hailo_platform.HailoRTException as error:
            raise hami.ConfigError(f'hailo: cannot load "{os.fspath(source)}": {error}') from error


class _Model(DeviceModel):
    selected = 0

    def __init__(self, infer_model: Any, name: str) -> None:
        self.name, self.names = name, [name]
        self.inputs = [_spec(infer_model.input(port), port) for port in infer_model.input_names]
        self.outputs = [_spec(infer_model.output(port), port) for port in infer_model.output_names]
        self._opened = contextlib.ExitStack()
        self.configured: Any = self._opened.enter_context(infer_model.configure())
        self._priority: Any = None

    def allocate(self) -> Buffers:
        buffers = Buffers(self.inputs, self.outputs)
        buffers.state = self.configured.create_bindings()
        return buffers

    def submit(self, buffers: Buffers, segment: int, core: int, priority: int) -> Call:
        level = _HIGHEST if priority >= 254 else priority * _HIGHEST // 254
        bindings = buffers.state
        for name, array in buffers.inputs.items():
            bindings.input(name).set_buffer(array)
        for name, array in buffers.outputs.items():
            bindings.output(name).set_buffer(array)
        try:
            if self._priority != level:
                self._priority = level
                self.configured.set_scheduler_priority(level)
            return _Call(self, self.configured.run_async([bindings]))
        except hailo_platform.HailoRTException as error:
            raise _device_error(error, self.name) from error

    def close(self) -> None:
        self._opened.close()
        self.configured = None


class _Call(Call):
    def __init__(self, model: _Model, job: Any) -> None:
        self._model, self._job = model, job
        self._ended = False

    def query(self) -> bool:
        return self._ended or self.wait(0)

    def wait(self, timeout: float | None) -> bool:
        try:
            self._job.wait(_NEVER_MS if timeout is None else int(timeout * 1000))
        except HailoRTTimeout:
            return False
        except hailo_platform.HailoRTException as error:
            self._ended = True
            raise _device_error(error, self._model.name) from error
        self._ended = True
        return True


def _device_error(error: Exception, model: str) -> DeviceError:
    """Keep the status of HailoRT, which the module puts into the cause of its exceptions."""
    status = getattr(error.__cause__, "args", ())
    code = next((int(part) for part in status if isinstance(part, int) or str(part).isdigit()), -1)
    return DeviceError(f"{model}: HailoRT: {error}", code)


def _spec(port: Any, name: str) -> TensorSpec:
    """Return the port in HailoRT's own type and layout, which has no axis for the batch."""
    quantization = None
    infos = port.quant_infos
    if len(infos) == 1 and infos[0].qp_scale:
        quantization = Quantization(float(infos[0].qp_scale), int(infos[0].qp_zp))
    dtype = np.dtype(str(port.format.type.name).lower())
    return TensorSpec(name, dtype, tuple(port.shape), quantization=quantization if dtype.kind in "iu" else None)

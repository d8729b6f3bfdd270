"""An example of a device: models on an NPU of Rockchip, through the module rknnlite.

Written from the manual of RKNN Lite and never run on hardware: before you rely on it, run
`hami_accel.testing.check_device`.
"""

from __future__ import annotations

import os
from typing import Any

import hami
import numpy as np
from rknnlite.api import RKNNLite

from hami_accel.device import Buffers, Call, Capabilities, Device, DeviceModel, LoadOptions, model_number
from hami_accel.errors import DeviceError
from hami_accel.specs import TensorSpec


class RknnDevice(Device):
    """RKNN Lite runs a task as one function-call. It has no priorities, so the engine orders the tasks.

    Args:
        cores: NPU cores that run function-calls at the same time: 3 on an RK3588, 2 on an RK3576. 1: the runtime
            chooses the core, which boards with one core need.
        dtype: type of the inputs; the runtime converts and quantises them.
    """

    name = "rknn"

    def __init__(self, *, cores: int = 1, dtype: str = "uint8") -> None:
        if not 1 <= cores <= 3:
            raise hami.ConfigError(f"rknn: cores must be 1 to 3, got {cores}")
        self.dtype = np.dtype(dtype)
        self.capabilities = Capabilities(cores=cores, quantised=True)

    def load(self, source: Any, options: LoadOptions) -> DeviceModel:
        if not isinstance(source, (str, os.PathLike)):
            raise hami.ConfigError(f"rknn: takes the path of a .rknn file, got {type(source).__name__}")
        name = os.path.basename(source)
        model_number(options.select, [name], self.name)
        if not options.shapes:
            raise hami.ConfigError(
                f'rknn: RKNN Lite does not report the inputs of "{name}"; pass their shapes in the order of the model, '
                'for example shapes={"image": [1, 640, 640, 3]}'
            )
        return _Model(self, os.fspath(source), name, options)


class _Model(DeviceModel):
    """One runtime per core, because RKNN Lite fixes the core of a runtime when it starts."""

    selected = 0

    def __init__(self, device: RknnDevice, path: str, name: str, options: LoadOptions) -> None:
        self.name, self.names = name, [name]
        self._runtimes: list[Any] = []
        try:
            for core in range(device.capabilities.cores):
                self._runtimes.append(_runtime(path, core, device.capabilities.cores))
            self.inputs = [TensorSpec(key, device.dtype, tuple(shape)) for key, shape in options.shapes.items()]
            outputs = self.run(0, [np.zeros(spec.shape, spec.dtype) for spec in self.inputs])
        except DeviceError as error:
            self.close()
            raise hami.ConfigError(f'rknn: cannot run "{path}" once with zeros: {error}') from error
        except BaseException:
            self.close()
            raise
        self.outputs = [TensorSpec(f"output_{n}", array.dtype, array.shape) for n, array in enumerate(outputs)]

    def run(self, core: int, inputs: list[Any]) -> list[Any]:
        """Run on a core. RKNN Lite reports an error by returning None."""
        outputs = self._runtimes[core].inference(inputs=inputs)
        if outputs is None:
            raise DeviceError(f"{self.name}: RKNN Lite: inference failed; its log names the reason", -1)
        return list(outputs)

    def submit(self, buffers: Buffers, segment: int, core: int, priority: int) -> Call:
        return _Call(self, buffers, core)

    def close(self) -> None:
        for runtime in self._runtimes:
            runtime.release()
        self._runtimes = []


class _Call(Call):
    """A task that runs on the thread that waits for it: the module has no asynchronous call."""

    def __init__(self, model: _Model, buffers: Buffers, core: int) -> None:
        self._model, self._buffers, self._core = model, buffers, core
        self._ended = False

    def query(self) -> bool:
        return self._ended

    def wait(self, timeout: float | None) -> bool:
        del timeout  # inference has none
        model, buffers = self._model, self._buffers
        try:
            results = model.run(self._core, [buffers.inputs[spec.name] for spec in model.inputs])
        finally:
            self._ended = True
        for spec, result in zip(model.outputs, results, strict=True):
            np.copyto(buffers.outputs[spec.name], result)
        return True


def _runtime(path: str, core: int, cores: int) -> Any:
    runtime = RKNNLite()
    arguments = {} if cores == 1 else {"core_mask": 1 << core}
    code, step = runtime.load_rknn(path), "load_rknn"
    if code == 0:
        code, step = runtime.init_runtime(**arguments), "init_runtime"
    if code != 0:
        runtime.release()
        raise hami.ConfigError(f'rknn: cannot load "{path}": {step} returned {code}; the log of RKNN says why')
    return runtime

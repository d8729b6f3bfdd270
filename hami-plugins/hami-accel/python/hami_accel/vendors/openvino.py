"""OpenVinoDevice: models on a device of OpenVINO (NPU, GPU or CPU)."""

from __future__ import annotations

import os
import threading
from typing import Any

import hami
import numpy as np
import openvino  # type: ignore[import-untyped,unused-ignore]

from hami_accel.device import Buffers, Call, Capabilities, Device, DeviceModel, LoadOptions
from hami_accel.errors import CallAborted, DeviceError
from hami_accel.specs import TensorSpec


class OpenVinoDevice(Device):
    """OpenVINO runs a task as one function-call, which it can cancel.

    Args:
        target: OpenVINO's name of the device: NPU, GPU, CPU, …; empty: NPU if there is one, else CPU.
    """

    name = "openvino"

    def __init__(self, *, target: str = "") -> None:
        self._core = openvino.Core()
        available = list(self._core.available_devices)
        self.target = target or ("NPU" if "NPU" in available else "CPU")
        if self.target not in available:
            raise hami.ConfigError(f"openvino: has the devices {', '.join(available)}, got {self.target!r}")
        self.capabilities = Capabilities(abort=True, priority_levels=3, zero_copy=True)

    def describe(self) -> dict[str, Any]:
        return {"openvino": openvino.__version__, "target": self.target}

    def load(self, source: Any, options: LoadOptions) -> DeviceModel:
        if not isinstance(source, (str, os.PathLike)):
            raise hami.ConfigError(f"openvino: takes the path of a model, got {type(source).__name__}")
        if options.select not in (0, os.path.basename(source)):
            raise hami.ConfigError(f"openvino: the file has one model, so select must be 0, got {options.select!r}")
        try:
            model = self._core.read_model(os.fspath(source))
            if options.shapes:
                model.reshape({name: list(shape) for name, shape in options.shapes.items()})
            return _Model(os.path.basename(source), self._core.compile_model(model, self.target))
        except RuntimeError as error:
            reason = (str(error).strip().splitlines() or ["unknown"])[-1]
            raise hami.ConfigError(f'openvino: cannot load "{os.fspath(source)}" on {self.target}: {reason}') from error


class _Model(DeviceModel):
    selected = 0

    def __init__(self, name: str, compiled: Any) -> None:
        self.name, self.names = name, [name]
        self._compiled: Any = compiled
        self.inputs = [_spec(port, name) for port in compiled.inputs]
        self.outputs = [_spec(port, name) for port in compiled.outputs]

    def allocate(self) -> Buffers:
        buffers = Buffers(self.inputs, self.outputs)
        buffers.state = self._compiled.create_infer_request()
        return buffers

    def submit(self, buffers: Buffers, segment: int, core: int, priority: int) -> Call:
        request = buffers.state
        for index, spec in enumerate(self.inputs):
            request.set_input_tensor(index, openvino.Tensor(buffers.inputs[spec.name], shared_memory=True))
        request.start_async()
        return _Call(self, buffers)

    def close(self) -> None:
        self._compiled = None


class _Call(Call):
    def __init__(self, model: _Model, buffers: Buffers) -> None:
        self._model, self._buffers = model, buffers
        self._aborted = threading.Event()

    def query(self) -> bool:
        return bool(self._buffers.state.wait_for(0))

    def wait(self, timeout: float | None) -> bool:
        request = self._buffers.state
        try:
            if timeout is None:
                request.wait()
            elif not request.wait_for(int(timeout * 1000)):
                return False
        except RuntimeError as error:
            if self._aborted.is_set():
                raise CallAborted from None
            raise DeviceError(f"{self._model.name}: OpenVINO: {str(error).strip()}", -1) from error
        for index, spec in enumerate(self._model.outputs):
            np.copyto(self._buffers.outputs[spec.name], request.get_output_tensor(index).data)
        return True

    def abort(self) -> bool:
        self._aborted.set()
        self._buffers.state.cancel()
        return True


def _spec(port: Any, model: str) -> TensorSpec:
    name = port.get_any_name() if port.get_names() else f"port_{port.get_index()}"
    if port.partial_shape.is_dynamic:
        raise hami.ConfigError(
            f'openvino: "{name}" of "{model}" has the shape {port.partial_shape}; accelerators need fixed shapes: pass '
            f"shapes={{{name!r}: […]}}"
        )
    return TensorSpec(name, np.dtype(port.element_type.to_dtype()), tuple(port.shape))

"""OnnxSimModel: an ONNX model for the simulator, which computes with ONNX Runtime and takes simulated time."""

from __future__ import annotations

from typing import Any

from hami_accel.device import LoadOptions
from hami_accel.onnx_device.device import OnnxDevice, OnnxModel
from hami_accel.sim_model import SimModel


class OnnxSimModel(SimModel):
    """The pieces of the model on the CPU as the function-calls of the simulated NPU, with the same times."""

    def __init__(self, source: Any, options: LoadOptions) -> None:
        loaded = OnnxDevice(threads=1).load(source, options)
        assert isinstance(loaded, OnnxModel)
        seconds = loaded.seconds
        super().__init__(loaded.name, [one * 1e6 for one in seconds], loaded.inputs, loaded.outputs)
        object.__setattr__(self, "_loaded", loaded)

    def begin(self, inputs: Any) -> Any:
        buffers = self._buffers()
        buffers.inputs = {name: array.copy() for name, array in inputs.items()}
        return buffers

    def advance(self, state: Any, segment: int) -> Any:
        self._model().submit(state, segment, 0, 0).wait(None)
        return state

    def end(self, state: Any) -> dict[str, Any]:
        return dict(state.outputs)

    def _model(self) -> OnnxModel:
        loaded: OnnxModel = self.__dict__["_loaded"]
        return loaded

    def _buffers(self) -> Any:
        return self._model().allocate()

"""TensorrtInferTensor: runs the engine that a loader left, on data that is one batch already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import hami
from hami_torch.backend import TensorBackend, as_tensor, data_of, dtype_name, named_parts, rows_of, show, torch

from hami_trt._context import Context
from hami_trt._engine import Engine, Port, Range


class TensorrtInferTensor(TensorBackend):
    """Run the engine in the instance's options on each request by itself; what gathers and scatters is around it.

    `data`: a tensor on the device, or the inputs as a list in their order or a dict by name. The result is a tensor, or
    a dict by name if the engine has several outputs. The range is that of the engine's profile: each instance has the
    profile of its number, or shares the first.
    """

    thread = "any"  # a context runs one batch at a time

    device: Annotated[str, "cuda or cuda:N, the one that the engine was opened on"] = "cuda"

    _context: Context | None = None

    def init(self, options: Any) -> None:
        engine = options.get("tensorrt_engine", None)
        if not isinstance(engine, Engine):
            raise hami.ConfigError(
                "TensorrtInferTensor: no engine was opened before it; put Onnx2Tensorrt or LoadTensorrtEngine first, "
                "as in IoC[LoadTensorrtEngine, TensorrtInferTensor; TensorrtInferTensor], or use TensorrtTensor"
            )
        self.devices = engine.library.devices
        super().init(options)
        if engine.device != self.torch_device:
            raise hami.ConfigError(
                f"TensorrtInferTensor: device is {self.torch_device}, and the engine was opened on {engine.device}; "
                "say device once, in the node"
            )
        self._context = engine.context(options.get("instance", 0), "TensorrtInferTensor")

    def min(self) -> int | None:
        return self._context.rows[0] if self._context else None

    def max(self) -> int | None:
        return self._context.rows[1] if self._context else None

    def run(self, batch: list[Any]) -> None:
        assert self._context is not None, "forward after close"
        names = [port.name for port in self._context.engine.outputs]
        for item, tensors in self.read(batch, self._feed):
            try:
                outputs = self._context.run(tensors)
            except hami.RequestError as error:
                item.fail(error.with_traceback(None))  # whose frames hold the tensors
            else:
                self.give(item, outputs[0] if len(names) == 1 else dict(zip(names, outputs, strict=True)))

    def _feed(self, item: Any) -> list[torch.Tensor]:
        """Return the tensors of a request in the order of the inputs; errors say which takes what."""
        assert self._context is not None
        values = self._values(data_of(item, "TensorrtInferTensor"))
        return [
            self._input(as_tensor(value, "TensorrtInferTensor"), port, shapes, item)
            for value, port, shapes in zip(values, self._context.engine.inputs, self._context.ranges, strict=True)
        ]

    def _values(self, data: Any) -> list[Any]:
        names = [port.name for port in self._context.engine.inputs]
        given = named_parts(data)
        if isinstance(data, Mapping) and given.keys() == set(names):
            return [given[name] for name in names]
        if isinstance(data, Mapping) or len(given) != len(names):
            raise hami.RequestError(f"TensorrtInferTensor: the inputs are {names}, got {list(given)}")
        return list(given.values())

    def _input(self, tensor: torch.Tensor, port: Port, shapes: Range, item: Any) -> torch.Tensor:
        self.check(tensor)
        if tensor.dtype != port.dtype or not shapes.holds(tensor.shape):
            raise hami.RequestError(
                f'TensorrtInferTensor: input "{port.name}" takes {dtype_name(port.dtype)} {shapes}, got {show(tensor)}'
            )
        return rows_of(tensor, item, "TensorrtInferTensor", port.name) if self._context.engine.batched else tensor

    def close(self) -> None:
        if self._context is not None:
            self._context.close()
        self._context = None

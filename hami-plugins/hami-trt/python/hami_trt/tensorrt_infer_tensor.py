"""TensorrtInferTensor: runs the engine that a loader opened. The data of a request is a whole batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import hami
from hami.batching import fail_request
from hami_torch.backend import TensorBackend, as_tensor, data_of, dtype_name, named_parts, rows_of, show, torch

from hami_trt._engine import Engine, Port
from hami_trt._execution_context import ExecutionContext
from hami_trt._shapes import ShapeRange


class TensorrtInferTensor(TensorBackend):
    """Run the engine that Onnx2Tensorrt or LoadTensorrtEngine opened in the same instance.

    IoC[LoadTensorrtEngine, TensorrtInferTensor; TensorrtInferTensor]

    `data` is a tensor on the device. An engine with several inputs takes a dict by input name, or a list in the order
    of the inputs. `result` is a tensor, or a dict by output name if the engine has several outputs. Each request runs
    by itself; CatSplit around this backend joins and splits the requests of a batch.
    Instance k uses profile k of the engine, or the first profile if there are fewer.
    """

    thread = "serialized"  # an execution context runs one batch at a time

    device: Annotated[str, "cuda or cuda:N; must be the device of the engine"] = "cuda"

    _open_context: ExecutionContext | None = None

    @property
    def _context(self) -> ExecutionContext:
        assert self._open_context is not None, "used before init or after close"
        return self._open_context

    def init(self, options: Any) -> None:
        engine = options.get("tensorrt_engine", None)
        if not isinstance(engine, Engine):
            raise hami.ConfigError(
                "TensorrtInferTensor: no engine is open; put Onnx2Tensorrt or LoadTensorrtEngine before it, as in "
                "IoC[LoadTensorrtEngine, TensorrtInferTensor; TensorrtInferTensor], or use TensorrtTensor"
            )
        self.devices = engine.library.device_types  # type: ignore[assignment,unused-ignore]
        super().init(options)
        if engine.device != self.torch_device:
            raise hami.ConfigError(
                f"TensorrtInferTensor: device is {self.torch_device}, but the engine is on {engine.device}; set device "
                "once, in the node"
            )
        self._open_context = engine.new_context(options.get("instance", 0), "TensorrtInferTensor")
        options["engine_inputs"] = [  # for FixTensor
            {
                "name": port.name,
                "dtype": dtype_name(port.dtype),
                "shape": [low if low == high else -1 for low, high in zip(shapes.min, shapes.max, strict=True)],
                "device": str(engine.device),
                "batch_axis": engine.batched,
            }
            for port, shapes in zip(engine.inputs, self._context.shapes, strict=True)
        ]

    def min(self) -> int:
        return self._context.rows[0]

    def max(self) -> int:
        return self._context.rows[1]

    def run(self, batch: list[Any]) -> None:
        names = [port.name for port in self._context.engine.outputs]
        for item, tensors in self.read(batch, self._inputs_of):
            try:
                outputs = self._context.run(tensors)
            except hami.RequestError as error:
                fail_request(item, error)
            else:
                self.give(item, outputs[0] if len(names) == 1 else dict(zip(names, outputs, strict=True)))

    def _inputs_of(self, item: Any) -> list[torch.Tensor]:
        """Return the tensors of a request in the order of the inputs."""
        context = self._context
        values = self._values(data_of(item, "TensorrtInferTensor"))
        return [
            self._checked(as_tensor(value, "TensorrtInferTensor"), port, shapes, item)
            for value, port, shapes in zip(values, context.engine.inputs, context.shapes, strict=True)
        ]

    def _values(self, data: Any) -> list[Any]:
        names = [port.name for port in self._context.engine.inputs]
        parts = named_parts(data)
        if isinstance(data, Mapping) and parts.keys() == set(names):
            return [parts[name] for name in names]
        if isinstance(data, Mapping) or len(parts) != len(names):
            raise hami.RequestError(f"TensorrtInferTensor: the engine has the inputs {names}, got {list(parts)}")
        return list(parts.values())

    def _checked(self, tensor: torch.Tensor, port: Port, shapes: ShapeRange, item: Any) -> torch.Tensor:
        self.check(tensor)
        if tensor.dtype != port.dtype or not shapes.contains(tensor.shape):
            raise hami.RequestError(
                f'TensorrtInferTensor: input "{port.name}" expects {dtype_name(port.dtype)} {shapes}, '
                f"got {show(tensor)}"
            )
        return rows_of(tensor, item, "TensorrtInferTensor", port.name) if self._context.engine.batched else tensor

    def close(self) -> None:
        if self._open_context is not None:
            self._open_context.close()
        self._open_context = None

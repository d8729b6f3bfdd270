"""TensorrtInferTensor: runs the engine that a loader opened. The data of a request is a whole batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import hami
from hami.batching import fail_request
from hami_cuda.device import find_device
from hami_cuda.memory import InstanceStream, Reading

from hami_trt._engine import Engine, Port
from hami_trt._execution_context import ExecutionContext
from hami_trt._graphs import Graphs
from hami_trt._shapes import ShapeRange

_MISSING = object()


class TensorrtInferTensor(hami.Backend):
    """Run the engine that Onnx2Tensorrt or LoadTensorrtEngine opened in the same instance.

    IoC[LoadTensorrtEngine, TensorrtInferTensor; TensorrtInferTensor]

    `data` is a tensor on the device. An engine with several inputs takes a dict by input name, or a list in the order
    of the inputs. `result` is a tensor, or a dict by output name if the engine has several outputs. Each request runs
    by itself; CatSplit around this backend joins and splits the requests of a batch.
    Instance k uses profile k of the engine, or the first profile if there are fewer. From the second run of the same
    input shapes on, a CUDA graph runs, unless the library cannot capture one.
    """

    thread = "serialized"  # an execution context runs one batch at a time

    device: Annotated[str, "cuda or cuda:N; must be the device of the engine"] = "cuda"

    graph: Annotated[bool, "capture runs as CUDA graphs, one for each set of input shapes, up to 16"] = True

    _open_context: ExecutionContext | None = None
    _graphs: Graphs | None = None

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
        device = find_device(self.device, "TensorrtInferTensor")
        if engine.device != device:
            raise hami.ConfigError(
                f"TensorrtInferTensor: device is {device}, but the engine is on {engine.device}; set device once, in "
                "the node"
            )
        stream = InstanceStream(options, device, "TensorrtInferTensor")
        try:
            self._open_context = engine.new_context(stream, options.get("instance", 0), "TensorrtInferTensor")
        except BaseException:
            stream.close()
            raise
        if self.graph:
            self._graphs = Graphs(self._open_context, self.log.warning)
        options["engine_inputs"] = [  # for FixTensor
            {
                "name": port.name,
                "dtype": port.dtype,
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

    def forward(self, batch: list[Any]) -> None:
        context = self._context
        names = [port.name for port in context.engine.outputs]
        with context.stream:
            for item in batch:
                try:
                    outputs = self._run(self._inputs_of(item))
                except (hami.RequestError, hami.DataTypeError) as error:
                    fail_request(item, error)
                else:
                    item["result"] = outputs[0] if len(names) == 1 else dict(zip(names, outputs, strict=True))

    def _run(self, inputs: list[Reading]) -> list[hami.Tensor]:
        captured = self._graphs.run(inputs) if self._graphs else None
        return self._context.run(inputs) if captured is None else captured

    def _inputs_of(self, item: Any) -> list[Reading]:
        """Return the tensors of a request in the order of the inputs."""
        context = self._context
        data = item.get("data", _MISSING)
        if data is _MISSING:
            raise hami.RequestError(
                f'TensorrtInferTensor: the request has no "data"; its keys are {sorted(item.keys())}'
            )
        return [
            self._checked(context.stream.read(value), port, shapes, item)
            for value, port, shapes in zip(self._values(data), context.engine.inputs, context.shapes, strict=True)
        ]

    def _values(self, data: Any) -> list[Any]:
        """Return the parts of the data in the order of the inputs."""
        names = [port.name for port in self._context.engine.inputs]
        if isinstance(data, Mapping):
            if data.keys() == set(names):
                return [data[name] for name in names]
            found = list(data)
        else:
            parts = list(data) if isinstance(data, (list, tuple)) else [data]
            if len(parts) == len(names):
                return parts
            found = [f"data[{index}]" for index in range(len(parts))] if isinstance(data, (list, tuple)) else ["data"]
        raise hami.RequestError(f"TensorrtInferTensor: the engine has the inputs {names}, got {found}")

    def _checked(self, given: Reading, port: Port, shapes: ShapeRange, item: Any) -> Reading:
        if given.dtype != port.dtype or not shapes.contains(given.shape):
            raise hami.RequestError(
                f'TensorrtInferTensor: input "{port.name}" expects {port.dtype} {shapes}, got {given}'
            )
        size = item.get("request_size", 1)
        if self._context.engine.batched and given.shape[0] != size:
            raise hami.RequestError(
                f'TensorrtInferTensor: "{port.name}" is {given}, but request_size is {size}; axis 0 must have '
                "request_size rows"
            )
        return given

    def close(self) -> None:
        graphs, self._graphs = self._graphs, None
        context, self._open_context = self._open_context, None
        if context is None:
            return
        with context.stream:
            context.stream.close()
        if graphs is not None:
            graphs.close()
        context.close()

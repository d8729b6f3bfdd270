"""TensorrtInferTensor: runs the engine that a loader opened. The data of a request is a whole batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import hami
from hami.batching import fail_request, joined_rows
from hami_cuda.device import find_device
from hami_cuda.memory import InstanceStream, Reading
from hami_model_check.row_watch import RowWatch, shared_watch
from hami_tensor.model_keys import ModelKeys, give_result

from hami_trt._engine import Engine, Port
from hami_trt._execution_context import ExecutionContext
from hami_trt._graphs import Graphs
from hami_trt._joining import EngineSource, Transfers, decide, joined, measure_rows, node_count, rows_between
from hami_trt._shapes import ShapeRange


class TensorrtInferTensor(hami.Backend):
    """Run the engine that Onnx2Tensorrt or LoadTensorrtEngine opened in the same instance.

    IoC[LoadTensorrtEngine, TensorrtInferTensor; TensorrtInferTensor]

    `data` is a tensor on the device. An engine with several inputs takes a dict by input name, or a list in the order
    of the inputs. Without `data`, each input is the key of its name. `result` is a tensor, or a dict by output name if
    the engine has several outputs, which are also keys. Each request runs by itself; CatSplit around this backend joins
    and splits the requests of a batch. They run as one only if a proof or a test shows that rows are independent.
    Instance k uses profile k of the engine, or the first profile if there are fewer. From the second run of the same
    input shapes on, a CUDA graph runs, unless the library cannot capture one.
    """

    thread = "serialized"  # an execution context runs one batch at a time

    device: Annotated[str, "cuda or cuda:N; must be the device of the engine"] = "cuda"

    graph: Annotated[bool, "capture runs as CUDA graphs, one for each set of input shapes, up to 16"] = True

    batched: Annotated[
        bool | None, "whether requests run together; default: if a proof or a test shows that rows are independent"
    ] = None

    _keys: ModelKeys | None = None
    _open_context: ExecutionContext | None = None
    _graphs: Graphs | None = None
    _joins = False
    _watch: RowWatch | None = None
    _transfers: Transfers | None = None
    _has_remarked = False

    @property
    def _context(self) -> ExecutionContext:
        assert self._open_context is not None, "used before init or after close"
        return self._open_context

    def init(self, options: Any) -> None:
        engine, source = options.get("tensorrt_engine", None), options.get("tensorrt_source", None)
        if not isinstance(engine, Engine) or not isinstance(source, EngineSource):
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
        self._keys = ModelKeys("TensorrtInferTensor", [port.name for port in engine.inputs])
        stream = InstanceStream(options, device, "TensorrtInferTensor")
        try:
            self._open_context = ExecutionContext.of_instance(
                engine, stream, options.get("instance", 0), "TensorrtInferTensor"
            )
        except BaseException:
            stream.close()
            raise
        self._decide(self._open_context, source)
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

    def _decide(self, context: ExecutionContext, source: EngineSource) -> None:
        """Find out whether requests may run together."""
        engine = context.engine
        joining = decide(engine, source, batched=self.batched, measure=lambda: measure_rows(context, source))
        self._joins = joining.joins
        if not joining.joins:
            if engine.batched and self.batched is not False:
                self.remark(f"TensorrtInferTensor runs requests one by one: {joining.explained}")
        elif joining.source != "declared" or joining.verdict != "mixes":
            self._transfers = Transfers()
            self._watch = shared_watch(
                engine,
                "TensorrtInferTensor",
                str(source.model),
                nodes=node_count(engine),
                computed_in=source.computed_in,
                stops=joining.source != "declared",
            )

    def min(self) -> int:
        return self._context.rows[0] if self._joins else 1

    def max(self) -> int:
        return self._context.rows[1]

    def forward(self, batch: list[Any]) -> None:
        context = self._context
        names = [port.name for port in context.engine.outputs]
        with context.stream:
            for item in batch:
                try:
                    outputs = self._answer(item)
                except (hami.RequestError, hami.DataTypeError) as error:
                    fail_request(item, error)
                else:
                    give_result(item, outputs[0] if len(names) == 1 else dict(zip(names, outputs, strict=True)))
        watch = self._watch
        if watch is not None and watch.difference is not None and not self._has_remarked:
            self._has_remarked = True
            self.remark(f"TensorrtInferTensor: {watch.finding}")

    def _answer(self, item: Any) -> list[hami.Tensor]:
        """Run a request; if it represents several, together only if their rows are independent."""
        rows, watch = joined_rows(item), self._watch
        values = self._values(item)
        if not rows or not self._context.engine.batched:
            return self._run(self._inputs_of(values, _size_of(item)))
        if not self._joins or (watch is not None and not watch.joins):
            return self._run_separately(values, rows)
        outputs = self._run(self._inputs_of(values, _size_of(item)))
        if watch is not None and watch.is_due() and not self._is_the_same_alone(values, outputs, rows, watch):
            return self._run_separately(values, rows)
        return outputs

    def _run_separately(self, values: list[Any], rows: list[int]) -> list[hami.Tensor]:
        """Run each of the requests that a request represents, and join what they get."""
        parts, start = [], 0
        for count in rows:
            own = [value[start : start + count] for value in values]
            parts.append(self._run(self._inputs_of(own, count)))
            start += count
        ports = self._context.engine.outputs
        return [
            joined(self._context, part, port.dtype) for part, port in zip(zip(*parts, strict=True), ports, strict=True)
        ]

    def _is_the_same_alone(
        self, values: list[Any], together: list[hami.Tensor], rows: list[int], watch: RowWatch
    ) -> bool:
        """Run the last row of a batch alone, and return whether its requests may keep what they got in the batch."""
        transfers, total = self._transfers, sum(rows)
        assert transfers is not None
        self.count("watched")

        def alone() -> list[Any]:
            outputs = self._run(rows_between(self._context, values, total - 1, total))
            return [transfers.to_array(output)[:1] for output in outputs]

        is_same = watch.compare(
            [port.name for port in self._context.engine.outputs],
            [transfers.to_array(output)[-1:] for output in together],
            alone,
            rows=total,
        )
        if not is_same:
            self.count("watch_differences")
        return is_same or watch.joins

    def _run(self, inputs: list[Reading]) -> list[hami.Tensor]:
        captured = self._graphs.run(inputs) if self._graphs else None
        return self._context.run(inputs) if captured is None else captured

    def _inputs_of(self, values: list[Any], size: int) -> list[Reading]:
        """Return what the engine reads, from the values in the order of the inputs."""
        context = self._context
        return [
            self._checked(context.stream.read(value), port, shapes, size)
            for value, port, shapes in zip(values, context.engine.inputs, context.shapes, strict=True)
        ]

    def _values(self, item: Any) -> list[Any]:
        """Return the parts of the data of a request in the order of the inputs."""
        assert self._keys is not None, "used before init"
        data = self._keys.data_of(item)
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

    def _checked(self, given: Reading, port: Port, shapes: ShapeRange, size: int) -> Reading:
        if given.dtype != port.dtype or not shapes.contains(given.shape):
            raise hami.RequestError(
                f'TensorrtInferTensor: input "{port.name}" expects {port.dtype} {shapes}, got {given}'
            )
        if self._context.engine.batched and given.shape[0] != size:
            raise hami.RequestError(
                f'TensorrtInferTensor: "{port.name}" is {given}, but request_size is {size}; axis 0 must have '
                "request_size rows"
            )
        return given

    def close(self) -> None:
        graphs, self._graphs = self._graphs, None
        context, self._open_context = self._open_context, None
        transfers, self._transfers = self._transfers, None
        if transfers is not None:
            transfers.close()
        if context is None:
            return
        with context.stream:
            context.stream.close()
        if graphs is not None:
            graphs.close()
        context.close()


def _size_of(item: Any) -> int:
    size: int = item.get("request_size", 1)
    return size

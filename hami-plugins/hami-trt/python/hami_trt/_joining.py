"""decide: finds out, by a proof of the ONNX model or a test of the engine, whether requests may be joined."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import hami
import numpy as np
from hami_cuda.memory import Reading
from hami_model_check.findings import stamp_of_package
from hami_model_check.joining import Axes, Joining, Measurement, decide_joining
from hami_model_check.row_test import RowInput, compare_rows
from numpy.typing import NDArray

from hami_trt._engine import Engine
from hami_trt._execution_context import ExecutionContext
from hami_trt._gpu import gpu_of

_WITHOUT_NUMPY = ("bfloat16", "float8_e4m3fn")
_UNKNOWN_LAYERS = 100  # for the tolerance, if the library does not count them

# The coarsest type that an engine computes in, as `tolerance` takes it. TF32, which counts as float16, is the default
# of TensorRT, and an engine of another program may use anything.
_COMPUTED_IN = {"fp32": "", "bf16": "bfloat16"}

_lock = threading.Lock()  # held during a test, so that the instances of a node run it once


def _reset_after_fork() -> None:
    """Replace the lock, which a thread of the parent may hold."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_reset_after_fork)


@dataclass(frozen=True)
class EngineSource:
    """What an engine was made of.

    Attributes:
        model: the file: the ONNX model, or the engine.
        files: all files of the model.
        is_onnx: whether there is a graph to prove something about.
        precision: of the build; None: that of the model, or unknown.
        settings: what else changes the results.
        limits: those of read_onnx.
    """

    model: Path
    files: tuple[Path, ...]
    is_onnx: bool = False
    precision: str | None = None
    settings: tuple[str, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)

    @property
    def computed_in(self) -> str:
        return _COMPUTED_IN.get(self.precision or "", "float16")


def decide(
    engine: Engine, source: EngineSource, *, batched: bool | None, measure: Callable[[], Measurement] | None
) -> Joining:
    """Decide whether requests may be joined along axis 0, and log once if the user overrides a finding."""
    if not engine.batched:
        return Joining(False, "none", "unknown", why="axis 0 of its inputs and outputs differs")
    with _lock:
        joining = decide_joining(
            source.model,
            backend="TensorrtTensor",
            engine=f"{engine.library} {gpu_of(engine.device)} {stamp_of_package(__file__)}",
            rules="onnx" if source.is_onnx else None,
            files=[str(file) for file in source.files],
            batched=batched,
            measure=measure,
            settings=source.settings,
            limits=source.limits,
        )
    joining.warn_of_override("TensorrtTensor", str(source.model))
    return along_axis_0(joining)


def along_axis_0(joining: Joining) -> Joining:
    """Return a finding for CatSplit, which joins along axis 0 of all inputs and splits along that of all outputs."""
    axes = {**joining.input_axes, **joining.output_axes}
    elsewhere = [name for name, axis in axes.items() if axis != 0]
    if not elsewhere or not joining.joins or joining.source == "declared":
        return joining
    why = f"the rows of {', '.join(elsewhere)} are not along axis 0, as in the other inputs and outputs"
    return replace(joining, joins=False, source="none", verdict="unknown", why=why)


def measure_rows(context: ExecutionContext, source: EngineSource) -> Measurement:
    """Run rows alone and together, with the shapes that the profile of a context is optimized for."""
    engine = context.engine
    without = [port.name for port in (*engine.inputs, *engine.outputs) if port.dtype in _WITHOUT_NUMPY]
    if without:
        return Measurement("unknown", {}, {}, f"NumPy has no type for the values of {', '.join(without)}", None)
    fewest, most = context.rows
    inputs = [
        RowInput(port.name, np.dtype(port.dtype), (most if fewest > 1 else None, *shapes.opt[1:]), 0)
        for port, shapes in zip(engine.inputs, context.shapes, strict=True)
    ]
    with Transfers() as transfers:

        def run(arrays: list[NDArray[Any]]) -> list[NDArray[Any]]:
            given = [transfers.to_device(array, str(engine.device)) for array in arrays]
            with context.stream:
                outputs = context.run([context.stream.read(value) for value in given])
            return [transfers.to_array(output) for output in outputs]

        test = compare_rows(
            run,
            inputs,
            [port.name for port in engine.outputs],
            nodes=node_count(engine),
            output_axes={port.name: 0 for port in engine.outputs},
            computed_in=source.computed_in,
            most_rows=most,
        )
    axes: Axes = {port.name: 0 for port in engine.inputs}
    largest = test.largest.relative if test.largest else None
    if test.verdict == "not run":
        return Measurement("unknown", {}, {}, test.why, largest)
    return Measurement("independent" if test.verdict == "equal" else "mixes", axes, test.output_axes, test.why, largest)


def node_count(engine: Engine) -> int:
    """Return the number of layers of an engine, an estimate if the library does not say it."""
    return int(getattr(engine.handle, "num_layers", 0)) or _UNKNOWN_LAYERS


class Transfers:
    """Copies arrays to a device and back; its pipes are opened when they are first used."""

    def __init__(self) -> None:
        self._pipes: dict[str, hami.Pipe] = {}

    def __enter__(self) -> Transfers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def to_device(self, array: NDArray[Any], device: str) -> Any:
        """Return a copy on the device."""
        return self._pipe("hami-cuda::GpuTensor", device=device)({"data": np.ascontiguousarray(array)})["result"]

    def to_array(self, tensor: Any) -> NDArray[Any]:
        """Return a copy in CPU memory, when the work that makes the tensor is done."""
        array: NDArray[Any] = hami.to_numpy(self._pipe("hami-cuda::CpuTensor")({"data": tensor})["result"])
        return array

    def close(self) -> None:
        """Close the pipes."""
        while self._pipes:
            self._pipes.popitem()[1].close()

    def _pipe(self, backend: str, **params: str) -> hami.Pipe:
        if backend not in self._pipes:
            self._pipes[backend] = hami.pipe({"backend": backend, "max": 1, **params})
        return self._pipes[backend]


def rows_between(context: ExecutionContext, values: Sequence[Any], start: int, stop: int) -> list[Reading]:
    """Return some rows of the inputs; copies of the last one fill up the smallest batch. The stream must be entered."""
    stream = context.stream
    missing = context.rows[0] - (stop - start)
    if missing <= 0:
        return [stream.read(value[start:stop]) for value in values]
    return [
        stream.read(joined(context, [value[start:stop], *[value[stop - 1 : stop]] * missing], port.dtype))
        for value, port in zip(values, context.engine.inputs, strict=True)
    ]


def joined(context: ExecutionContext, parts: Sequence[Any], dtype: str) -> hami.Tensor:
    """Return tensors one after the other along axis 0. The stream must be entered."""
    shapes = [tuple(map(int, part.shape)) for part in parts]
    whole = context.stream.empty(dtype, (sum(shape[0] for shape in shapes), *shapes[0][1:]))
    address = whole.address
    for part in parts:
        context.stream.read(part).copy_to(address)
        address += part.nbytes
    return whole.tensor

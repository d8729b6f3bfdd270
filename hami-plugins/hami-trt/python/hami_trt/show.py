"""show_engine and findings_of: what `hami show` and `hami check` print about an engine or its model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hami
from hami_cuda.memory import InstanceStream
from hami_model_check.joining import decide_joining

from hami_trt._engine import open_engine
from hami_trt._execution_context import ExecutionContext
from hami_trt._gpu import find_device, gpu_of
from hami_trt._joining import along_axis_0, decide, measure_rows
from hami_trt._tensorrt import find_library
from hami_trt.load_tensorrt_engine import read_compatible, source_of

_OWNER = "hami show"


def show_engine(path: str) -> dict[str, Any]:
    """Return facts about an engine file: inputs, outputs, and whether requests run together, and how that is known.

    The test runs on the first GPU.

    Raises:
        hami.ConfigError: the engine cannot be opened on this machine.
    """
    library = find_library(None, _OWNER)
    device = find_device(library, "cuda", _OWNER)
    stored = read_compatible(Path(path), library, gpu_of(device), _OWNER)
    if stored.recipe and stored.recipe.get("version_compatible"):
        hami.native.check_library(path, "a version compatible engine")
    engine = open_engine(stored.blob, library, device, stored.recipe, _OWNER)
    source = source_of(Path(path), stored)
    stream = InstanceStream({}, device, _OWNER)
    try:
        context = ExecutionContext.of_instance(engine, stream, 0, _OWNER)
        try:
            joining = decide(engine, source, batched=None, measure=lambda: measure_rows(context, source))
        finally:
            stream.wait()
            context.close()
    finally:
        stream.close()
    ports = {"inputs": engine.inputs, "outputs": engine.outputs}
    return {
        "engine": f"{library}, {device}",
        **{name: [f"{port.name}  {port.dtype} {_shape(port.shape)}" for port in each] for name, each in ports.items()},
        "profiles": [", ".join(map(str, shapes)) for shapes in engine.profiles],
        **joining.facts(),
    }


def _shape(shape: tuple[int | None, ...]) -> str:
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"


def findings_of(backend: str, params: dict[str, Any]) -> list[str]:
    """Return a sentence about the model of a configured loader; no engine is opened or built."""
    path = Path(str(params.get("model") or ""))
    if not path.is_file():
        return []
    if backend == "LoadTensorrtEngine":
        return [f'"{path.name}": whether requests run together is tested when the engine is opened']
    joining = along_axis_0(decide_joining(path, backend="TensorrtTensor", engine="TensorRT"))
    tested = "" if joining.verdict != "unknown" else "; a test decides when the engine is opened"
    return [joining.finding(path.name) + tested]

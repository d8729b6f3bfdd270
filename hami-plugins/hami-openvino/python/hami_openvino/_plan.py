"""plan_of: tells the native backend the names of the ports of an ONNX model, and whether its rows are independent."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hami_model_check.graph import Graph
from hami_model_check.joining import Axes, Joining, decide_joining

from hami_openvino._openvino import version

_SHARED = -1  # the axis of a port that all rows share


def plan_of(
    path: str | os.PathLike[str],
    graph: Graph,
    *,
    batched: bool | None,
    files: Sequence[str | os.PathLike[str]],
    limits: dict[str, int],
) -> dict[str, Any]:
    """Return the option `openvino_plan`, which src/plan.hpp explains."""
    constants = graph.main.constants
    plan: dict[str, Any] = {
        "inputs": [port.name for port in graph.main.inputs if port.name not in constants],
        "outputs": [port.name for port in graph.main.outputs],
        "rows": "unknown",
        "why": "",
    }
    if batched is False:
        return plan
    joining = joining_of(path, files, limits)
    return {**plan, **_rows_of(joining)}


def engine_name() -> str:
    """Return what runs a model, for the key of a finding."""
    return f"openvino {version() or 'of unknown version'}"


def joining_of(
    path: str | os.PathLike[str], files: Sequence[str | os.PathLike[str]], limits: dict[str, int]
) -> Joining:
    """Return what is proven about the rows of a model, as OpenVINO computes them."""
    return decide_joining(
        path,
        backend="OpenvinoTensor",
        engine=engine_name(),
        rules="openvino",
        files=[os.fspath(file) for file in files],
        limits=limits,
    )


def weights_of(model: Path, names: tuple[str, ...]) -> list[Path]:
    """Return the files with weights that exist, beside a link as in the Hugging Face cache, or beside its target."""
    folders = (model.resolve().parent, model.parent)
    found = (next((folder / name for folder in folders if (folder / name).is_file()), None) for name in names)
    return [path for path in found if path is not None]


def _rows_of(joining: Joining) -> dict[str, Any]:
    if joining.joins:
        return {
            "rows": "independent",
            "why": "",
            "input_axes": _numbers_of(joining.input_axes),
            "output_axes": _numbers_of(joining.output_axes),
        }
    if joining.verdict == "mixes":
        return {"rows": "mixes", "why": f"{joining.reason}; {joining.advice}"}
    return {"rows": "unknown", "why": joining.reason}


def _numbers_of(axes: Axes) -> dict[str, int]:
    return {name: _SHARED if axis is None else axis for name, axis in axes.items()}

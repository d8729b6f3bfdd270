"""plan_of: tells the native backend the names of the ports of an ONNX model, and whether its rows are independent."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hami_model_check.graph import Graph
from hami_model_check.joining import Joining, decide_joining

from hami_openvino._openvino import version


def plan_of(
    path: str | os.PathLike[str],
    graph: Graph,
    *,
    batched: bool | None,
    files: Sequence[str | os.PathLike[str]],
    limits: dict[str, int],
) -> dict[str, Any]:
    """Return the option `openvino_plan`: `inputs`, `outputs`, `why`, and `rows`: independent, mixes or unknown."""
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


def joining_of(
    path: str | os.PathLike[str], files: Sequence[str | os.PathLike[str]], limits: dict[str, int]
) -> Joining:
    """Return what is proven about the rows of a model, as OpenVINO computes them."""
    return decide_joining(
        path,
        backend="OpenvinoTensor",
        engine=f"openvino {version() or 'of unknown version'}",
        rules="openvino",
        files=[os.fspath(file) for file in files],
        limits=limits,
    )


def weights_of(model: Path, names: tuple[str, ...]) -> list[Path]:
    """Return the files with weights that exist, beside a link as in the Hugging Face cache, or beside its target."""
    folders = (model.resolve().parent, model.parent)
    found = (next((folder / name for folder in folders if (folder / name).is_file()), None) for name in names)
    return [path for path in found if path is not None]


def _rows_of(joining: Joining) -> dict[str, str]:
    axes = [*joining.input_axes.values(), *joining.output_axes.values()]
    if joining.joins and any(axis not in (0, None) for axis in axes):
        return {
            "rows": "mixes",
            "why": f"OpenvinoTensor joins along axis 0 only, and the rows are elsewhere: {joining.axes}",
        }
    if joining.joins:
        return {"rows": "independent", "why": ""}
    if joining.verdict == "mixes":
        return {"rows": "mixes", "why": f"{joining.reason}; {joining.advice}"}
    return {"rows": "unknown", "why": joining.reason}

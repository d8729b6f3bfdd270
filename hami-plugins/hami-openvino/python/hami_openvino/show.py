"""show_model and findings_of: what `hami show` and `hami check` print about a model that OpenVINO would run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hami_model_check.graph import read_graph
from hami_model_check.joining import Joining
from hami_model_check.onnx import read_onnx

from hami_openvino._ir import read_ir
from hami_openvino._openvino import version
from hami_openvino._plan import joining_of, weights_of
from hami_openvino.differences import Difference, differences_of, openvino_version

_BACKEND = "OpenvinoTensor"


def show_model(path: str) -> dict[str, Any]:
    """Return facts about an ONNX file: what OpenVINO computes differently, and what is proven about its rows.

    Raises:
        hami.ConfigError: the file is not a valid model.
    """
    differences, joining = _look_at(Path(path))
    facts: dict[str, Any] = {
        "engine": f"openvino {version() or 'of unknown version'}",
        "refused": [str(each) for each in differences if each.refused],
        "differences": [str(each) for each in differences if not each.refused],
        "precision": "float32, unless `precision` is set",
        "rows": joining.verdict,
        "axes": joining.axes if joining.joins else "",
        "reason": joining.reason,
        "advice": joining.advice if joining.verdict == "mixes" else joining.cure,
    }
    return {name: value for name, value in facts.items() if value not in ("", [])}


def show_ir(path: str) -> dict[str, Any]:
    """Return facts about an OpenVINO IR: what its .xml file declares.

    Raises:
        hami.ConfigError: the file is not an IR.
    """
    ir = read_ir(path)
    files = [Path(path), *weights_of(Path(path), (Path(path).with_suffix(".bin").name,))]
    return {
        "engine": f"openvino {version() or 'of unknown version'}",
        "inputs": list(map(str, ir.inputs)),
        "outputs": list(map(str, ir.outputs)),
        "precision": "float32, unless `precision` is set",
        "rows": "unknown: a test decides when a pipe opens the model",
        "ir version": ir.version,
        "size": f"{sum(file.stat().st_size for file in files)} bytes",
    }


def findings_of(params: dict[str, Any]) -> list[str]:
    """Return sentences about the model of a configured backend; nothing is loaded."""
    path = Path(str(params.get("model") or ""))
    if not path.is_file() or path.suffix == ".xml":
        return []
    differences, joining = _look_at(path)
    accepted = params.get("accept_differences") or []
    texts = []
    for each in differences:
        refused = each.refused and each.operator not in accepted
        texts.append(f'"{path.name}": {"is refused" if refused else "OpenVINO differs from ONNX"}: {each}')
    if params.get("batched") is None and joining.verdict != "unknown":
        texts.append(joining.finding(path.name))
    return texts


def _look_at(path: Path) -> tuple[list[Difference], Joining]:
    model = read_onnx(path, backend=_BACKEND, empty_inputs=True)
    files = [path, *weights_of(path, model.external_files)]
    return differences_of(read_graph(path), openvino_version()), joining_of(path, files, {})

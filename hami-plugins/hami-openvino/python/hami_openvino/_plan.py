"""plan_of: tells the native backend the names of the ports of an ONNX model, and whether its rows are independent."""

from __future__ import annotations

import os
from typing import Any

from hami_model_check.graph import Graph
from hami_model_check.rows import prove_rows


def plan_of(path: str | os.PathLike[str], graph: Graph, batched: bool | None, limits: dict[str, int]) -> dict[str, Any]:
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
    proof = prove_rows(
        path,
        backend="OpenvinoTensor",
        engine="openvino",
        max_nodes=limits["max_nodes"],
        max_graph_depth=limits["max_graph_depth"],
        max_call_depth=limits["max_call_depth"],
    )
    if proof.verdict == "independent" and all(axis in (0, None) for axis in _axes(proof)):
        return {**plan, "rows": "independent"}
    if proof.verdict == "independent":
        return {**plan, "rows": "mixes", "why": f"the rows are not on axis 0: {_shown_axes(proof)}"}
    return {**plan, "rows": proof.verdict, "why": _why(proof)}


def _axes(proof: Any) -> list[int | None]:
    return [*proof.input_axes.values(), *proof.output_axes.values()]


def _shown_axes(proof: Any) -> str:
    named = {**proof.input_axes, **proof.output_axes}
    return ", ".join(f"{name}: {'shared' if axis is None else f'axis {axis}'}" for name, axis in named.items())


def _why(proof: Any) -> str:
    if proof.verdict != "mixes":
        return "" if proof.reason is None else f"it is not proven that rows are independent: {proof.reason}"
    advice = "export the model so that this operator works within each row"
    if proof.quantized:
        advice = "quantise the model with static scales"
    return f"rows influence each other: {proof.reason}; {advice}"

"""Helpers that write small models and prove their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from hami_model_check.rows import RowProof, prove_rows

ROWS = "rows"


def op(operator: str, inputs: str, outputs: str = "y", domain: str = "", name: str = "", **attributes) -> NodeProto:
    """Return a node; "-" stands for an input or output that is left out."""
    given, results = (["" if each == "-" else each for each in names.split()] for names in (inputs, outputs))
    return helper.make_node(operator, given, results, name=name or None, domain=domain, **attributes)


def model(
    *nodes: NodeProto,
    inputs: Mapping[str, Sequence[int | str | None]] | None = None,
    constants: Mapping[str, object] | None = None,
    outputs: str = "y",
    opset: int = 17,
    kinds: Mapping[str, int] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """Return a model; the input x has the shape [rows, 4] unless `inputs` say otherwise."""
    kinds = kinds or {}
    given = [
        helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), shape)
        for name, shape in (inputs or {"x": [ROWS, 4]}).items()
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs.split()]
    for result in results:
        result.type.tensor_type.elem_type = kinds.get(result.name, TensorProto.FLOAT)
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()]
    domains = {"": opset, "ai.onnx.ml": 3, "com.microsoft": 1, "local": 1}
    return helper.make_model(
        helper.make_graph(nodes, "graph", given, results, weights),
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in domains.items()],
        functions=functions,
        ir_version=10,
    )


def prove(folder: Path, built: onnx.ModelProto, **arguments) -> RowProof:
    path = folder / "model.onnx"
    path.write_bytes(built.SerializeToString())
    return prove_rows(path, backend="Test", **arguments)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)

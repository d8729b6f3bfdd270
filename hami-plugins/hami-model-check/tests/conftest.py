"""Helpers that write ONNX models, also ones that no program writes."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import FunctionProto, GraphProto, NodeProto, TensorProto, ValueInfoProto, helper

OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]


def value(name: str, shape=("n", 2), kind=TensorProto.FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def node(operator: str, inputs: str = "x", outputs: str = "y", domain: str = "", **attributes) -> NodeProto:
    return helper.make_node(operator, inputs.split(), outputs.split(), domain=domain, **attributes)


def function(name: str, *nodes: NodeProto) -> FunctionProto:
    return helper.make_function("acme", name, ["x"], ["y"], nodes, OPSETS)


def call(name: str, inputs: str = "x", outputs: str = "y") -> NodeProto:
    return node(name, inputs, outputs, "acme")


def graph(*nodes: NodeProto, inputs=(), initializers=(), name="graph") -> GraphProto:
    return helper.make_graph(nodes, name, inputs, [value("y")], initializers)


def nested(depth: int, *innermost: NodeProto) -> NodeProto:
    """An If node that contains `depth` - 1 others, one in the other."""
    inner = [nested(depth - 1, *innermost)] if depth > 1 else innermost or [node("Identity")]
    return node(
        "If", "on", "y", then_branch=graph(*inner, name="then"), else_branch=graph(node("Identity"), name="else")
    )


@pytest.fixture
def save(tmp_path):
    """save(node, …, functions=…) writes a model and returns its path."""

    def write(*nodes: NodeProto, functions=(), inputs=(), initializers=(), name="model.onnx") -> Path:
        main = graph(*nodes, inputs=inputs or [value("x")], initializers=initializers)
        model = helper.make_model(main, opset_imports=OPSETS, functions=functions, ir_version=9)
        path = tmp_path / name
        onnx.save(model, path)
        return path

    return write

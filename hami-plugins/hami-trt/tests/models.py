"""Small ONNX models for the tests. An engine of each is built in a fraction of a second."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def save(path: Path, nodes: list, inputs: dict, outputs: dict, weights: dict | None = None, domain: str = "") -> Path:
    """Write a model. `inputs` and `outputs` are shapes by name, or (type, shape)."""

    def infos(values: dict) -> list:
        typed = {
            name: value if isinstance(value, tuple) else (TensorProto.FLOAT, value) for name, value in values.items()
        }
        return [helper.make_tensor_value_info(name, *value) for name, value in typed.items()]

    tensors = [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(nodes, "graph", infos(inputs), infos(outputs), tensors)
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


def convolution(path: Path, seed: int = 0, dtype: type = np.float32, batch: str | int = "N") -> Path:
    """x [N, 3, 8, 8] -> z [N, 4, 8, 8]."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    weight = np.random.default_rng(seed).standard_normal((4, 3, 3, 3)).astype(dtype)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1], name="conv"),
        helper.make_node("Relu", ["y"], ["z"], name="relu"),
    ]
    return save(path, nodes, {"x": (kind, [batch, 3, 8, 8])}, {"z": (kind, [batch, 4, 8, 8])}, {"w": weight})


def external(path: Path, seed: int = 0) -> Path:
    """The model of `convolution`, with its weights in a file beside it."""
    model = onnx.load(convolution(path, seed))
    onnx.save(model, path, save_as_external_data=True, location=f"{path.stem}.weights", size_threshold=0)
    return path


def quantized(path: Path) -> Path:
    """x [N, 4], quantized and dequantized."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["z"]),
    ]
    weights = {"scale": np.array(0.1, np.float32), "zero": np.array(0, np.int8)}
    return save(path, nodes, {"x": ["N", 4]}, {"z": ["N", 4]}, weights)


def double(path: Path) -> Path:
    """x [N, 2] -> y = 2 * x."""
    return save(path, [helper.make_node("Add", ["x", "x"], ["y"])], {"x": ["N", 2]}, {"y": ["N", 2]})


def two_inputs(path: Path) -> Path:
    """a [N, 4] and b [N, K] -> z [N, 4]."""
    nodes = [
        helper.make_node("ReduceMax", ["b"], ["s"], axes=[1], keepdims=1),
        helper.make_node("Add", ["a", "s"], ["z"]),
    ]
    return save(path, nodes, {"a": ["N", 4], "b": ["N", "K"]}, {"z": ["N", 4]})


def unsupported(path: Path, operator: str = "Det", domain: str = "") -> Path:
    """A model with a node "strange" of an operator that TensorRT does not support."""
    node = helper.make_node(operator, ["x"], ["z"], name="strange", domain=domain)
    return save(path, [node], {"x": ["N", 4, 4]}, {"z": ["N"]}, domain=domain)

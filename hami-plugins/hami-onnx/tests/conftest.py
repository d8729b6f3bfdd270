"""Fixtures: small ONNX models, and pipes of one backend that are closed after the test."""

from __future__ import annotations

from pathlib import Path

import hami
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper


def save(path: Path, nodes, inputs, outputs, constants=None, opset=17) -> Path:
    """Write a model file; inputs and outputs are {name: (element type, shape)}."""
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, *port) for name, port in inputs.items()],
        [helper.make_tensor_value_info(name, *port) for name, port in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path)
    return path


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    """Findings about models go into a folder of the test, not into that of the user."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def models(tmp_path):
    """models.<kind>() writes a model file and returns its path."""

    class Models:
        def double(self, rows="n", width="w", kind=TensorProto.FLOAT, shape=None) -> Path:
            """y = x + x"""
            node = helper.make_node("Add", ["x", "x"], ["y"])
            port = (kind, shape or [rows, width])
            return save(tmp_path / "double.onnx", [node], {"x": port}, {"y": port})

        def sum_and_difference(self) -> Path:
            """total = a + b, rest = a - b"""
            nodes = [helper.make_node("Add", ["a", "b"], ["total"]), helper.make_node("Sub", ["a", "b"], ["rest"])]
            port = (TensorProto.FLOAT, ["n", 2])
            return save(tmp_path / "two.onnx", nodes, {"a": port, "b": port}, {"total": port, "rest": port})

        def add_scalar(self) -> Path:
            """y = x + s; s is a scalar, so the inputs share no batch axis"""
            node = helper.make_node("Add", ["x", "s"], ["y"])
            port = (TensorProto.FLOAT, ["n", 2])
            return save(tmp_path / "scalar.onnx", [node], {"x": port, "s": (TensorProto.FLOAT, [])}, {"y": port})

        def products(self, columns, width) -> Path:
            """y = products of all pairs of rows; the width of y is the number of rows"""
            transpose = helper.make_node("Transpose", ["x"], ["t"])
            node = helper.make_node("MatMul", ["x", "t"], ["y"])
            ports = {"x": (TensorProto.FLOAT, ["n", columns])}, {"y": (TensorProto.FLOAT, ["n", width])}
            return save(tmp_path / "products.onnx", [transpose, node], *ports)

        def pick(self, rows="n") -> Path:
            """y = row `index` of a table with 3 rows; an index of 3 fails the whole run"""
            node = helper.make_node("Gather", ["table", "index"], ["y"])
            table = {"table": np.arange(6, dtype=np.float32).reshape(3, 2)}
            ports = {"index": (TensorProto.INT64, [rows])}, {"y": (TensorProto.FLOAT, [rows, 2])}
            return save(tmp_path / "pick.onnx", [node], *ports, table)

        def nonzero(self) -> Path:
            """y = positions of the non-zero values of x; their number is independent of the rows of x"""
            node = helper.make_node("NonZero", ["x"], ["z"])
            transpose = helper.make_node("Transpose", ["z"], ["y"])
            ports = {"x": (TensorProto.FLOAT, ["n", 2])}, {"y": (TensorProto.INT64, ["k", 2])}
            return save(tmp_path / "nonzero.onnx", [node, transpose], *ports)

        def words(self) -> Path:
            """y = x, of strings"""
            node = helper.make_node("Identity", ["x"], ["y"])
            port = (TensorProto.STRING, ["n"])
            return save(tmp_path / "words.onnx", [node], {"x": port}, {"y": port})

        def constant(self) -> Path:
            """y = [1, 2]; the model has no inputs"""
            node = helper.make_node("Identity", ["table"], ["y"])
            return save(
                tmp_path / "constant.onnx", [node], {}, {"y": (TensorProto.FLOAT, [2])}, {"table": np.float32([1, 2])}
            )

    return Models()


@pytest.fixture
def pipe():
    """pipe(backend="OnnxTensor", …) returns an open pipe."""
    opened = []

    def make(backend="OnnxTensor", **config):
        opened.append(hami.pipe({"backend": backend, **config}))
        return opened[-1]

    yield make
    for pipe in opened:
        pipe.close()

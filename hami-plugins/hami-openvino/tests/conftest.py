"""Fixtures: small models, and pipes of one OpenvinoTensor that are closed after the test."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

import hami
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper


def save(path: Path, nodes, inputs, outputs, constants=None, opset=17) -> Path:
    """Write an ONNX model and return its path. Inputs and outputs are {name: (element type, shape)}."""
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, *port) for name, port in inputs.items()],
        [helper.make_tensor_value_info(name, *port) for name, port in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9 if opset < 20 else 12), path)
    return path


def opset(number: int):
    """Return the module with OpenVINO's operators; versions up to 2024 have it in openvino.runtime."""
    package = "openvino" if importlib.util.find_spec(f"openvino.opset{number}") else "openvino.runtime"
    return importlib.import_module(f"{package}.opset{number}")


@pytest.fixture
def models(tmp_path):
    """models.<kind>() writes a model file and returns its path."""

    class Models:
        def double(self, rows="n", width="w", kind=TensorProto.FLOAT) -> Path:
            """y = x + x"""
            node = helper.make_node("Add", ["x", "x"], ["y"])
            return save(tmp_path / "double.onnx", [node], {"x": (kind, [rows, width])}, {"y": (kind, [rows, width])})

        def identity(self, kind=TensorProto.FLOAT) -> Path:
            """y = x, for any element type"""
            node = helper.make_node("Identity", ["x"], ["y"])
            return save(tmp_path / "identity.onnx", [node], {"x": (kind, ["n", "w"])}, {"y": (kind, ["n", "w"])})

        def layers(self) -> tuple[Path, dict[str, np.ndarray]]:
            """y = relu(x @ a + b) @ c; returns the constants too"""
            random = np.random.default_rng(7)
            sizes = {"a": (8, 16), "b": (16,), "c": (16, 4)}
            constants = {name: random.standard_normal(size).astype(np.float32) for name, size in sizes.items()}
            nodes = [
                helper.make_node("MatMul", ["x", "a"], ["xa"]),
                helper.make_node("Add", ["xa", "b"], ["sum"]),
                helper.make_node("Relu", ["sum"], ["relu"]),
                helper.make_node("MatMul", ["relu", "c"], ["y"]),
            ]
            ports = {"x": (TensorProto.FLOAT, ["n", 8])}, {"y": (TensorProto.FLOAT, ["n", 4])}
            return save(tmp_path / "layers.onnx", nodes, *ports, constants), constants

        def sum_and_difference(self) -> Path:
            """total = a + b, rest = a - b"""
            nodes = [helper.make_node("Add", ["a", "b"], ["total"]), helper.make_node("Sub", ["a", "b"], ["rest"])]
            port = (TensorProto.FLOAT, ["n", 2])
            return save(tmp_path / "two.onnx", nodes, {"a": port, "b": port}, {"total": port, "rest": port})

        def add_scalar(self) -> Path:
            """y = x + s, where s is a scalar: the inputs have no common batch axis"""
            node = helper.make_node("Add", ["x", "s"], ["y"])
            port = (TensorProto.FLOAT, ["n", 2])
            return save(tmp_path / "scalar.onnx", [node], {"x": port, "s": (TensorProto.FLOAT, [])}, {"y": port})

        def total(self) -> Path:
            """y = sum of all elements of x, a scalar; size = number of rows of x"""
            nodes = [
                helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0),
                helper.make_node("Shape", ["x"], ["size"], start=0, end=1),
            ]
            outputs = {"y": (TensorProto.FLOAT, []), "size": (TensorProto.INT64, [1])}
            return save(tmp_path / "total.onnx", nodes, {"x": (TensorProto.FLOAT, ["n", 2])}, outputs)

        def times_mean(self) -> Path:
            """y = x * mean of the rows of s; x and s can have different numbers of rows"""
            mean = helper.make_node("ReduceMean", ["s"], ["mean"], axes=[0], keepdims=1)
            port = (TensorProto.FLOAT, ["n", 2])
            inputs = {"x": port, "s": (TensorProto.FLOAT, ["k", 2])}
            return save(
                tmp_path / "mean.onnx", [mean, helper.make_node("Mul", ["x", "mean"], ["y"])], inputs, {"y": port}
            )

        def two_pairs(self, tied) -> Path:
            """y = a + b, z = c + d; with `tied` z = (a + b) + (c + d)"""
            nodes = [helper.make_node("Add", ["a", "b"], ["y"]), helper.make_node("Add", ["c", "d"], ["cd"])]
            nodes.append(helper.make_node(*(("Add", ["y", "cd"]) if tied else ("Identity", ["cd"])), ["z"]))
            port = (TensorProto.FLOAT, [None, 2])
            return save(tmp_path / "pairs.onnx", nodes, dict.fromkeys("acbd", port), dict.fromkeys("yz", port))

        def products(self) -> Path:
            """y = products of each pair of rows: its width is the number of rows"""
            transpose = helper.make_node("Transpose", ["x"], ["t"])
            ports = {"x": (TensorProto.FLOAT, ["n", 2])}, {"y": (TensorProto.FLOAT, ["n", "n"])}
            return save(tmp_path / "products.onnx", [transpose, helper.make_node("MatMul", ["x", "t"], ["y"])], *ports)

        def symmetric_sums(self) -> Path:
            """y = means of the rows of x + transposed x: x must have as many columns as rows"""
            nodes = [
                helper.make_node("Transpose", ["x"], ["t"]),
                helper.make_node("Add", ["x", "t"], ["s"]),
                helper.make_node("ReduceMean", ["s"], ["y"], axes=[1], keepdims=0),
            ]
            ports = {"x": (TensorProto.FLOAT, ["n", "n"])}, {"y": (TensorProto.FLOAT, ["n"])}
            return save(tmp_path / "symmetric.onnx", nodes, *ports)

        def pooled_and_back(self) -> Path:
            """y = x + upsampled(pooled x): the dynamic width must be even, and does not depend on the rows"""
            nodes = [
                helper.make_node("MaxPool", ["x"], ["half"], kernel_shape=[2], strides=[2]),
                helper.make_node("Resize", ["half", "", "scales"], ["whole"], mode="nearest"),
                helper.make_node("Add", ["x", "whole"], ["y"]),
            ]
            port = (TensorProto.FLOAT, ["n", 3, "w"])
            path = tmp_path / "pooled.onnx"
            return save(path, nodes, {"x": port}, {"y": port}, {"scales": np.float32([1, 1, 2])})

        def folded(self) -> Path:
            """y = x reshaped to the largest `width`: a width that does not divide the size of x makes the run fail"""
            nodes = [
                helper.make_node("ReduceMax", ["width"], ["most"], axes=[0], keepdims=0),
                helper.make_node("Concat", ["any", "most"], ["shape"], axis=0),
                helper.make_node("Reshape", ["x", "shape"], ["y"]),
            ]
            inputs = {"x": (TensorProto.FLOAT, ["n", 2]), "width": (TensorProto.INT64, ["n", 1])}
            outputs = {"y": (TensorProto.FLOAT, ["n", "w"])}
            return save(tmp_path / "folded.onnx", nodes, inputs, outputs, {"any": np.array([-1])})

        def widened(self, rows) -> Path:
            """y = x + `width` repeated to the largest width: the run fails unless that is 1 or 2"""
            nodes = [
                helper.make_node("ReduceMax", ["width"], ["most"], axes=[0], keepdims=0),
                helper.make_node("Concat", ["once", "most"], ["times"], axis=0),
                helper.make_node("Tile", ["width", "times"], ["wide"]),
                helper.make_node("Cast", ["wide"], ["added"], to=TensorProto.FLOAT),
                helper.make_node("Add", ["x", "added"], ["y"]),
            ]
            port = (TensorProto.FLOAT, [rows, 2])
            inputs = {"x": port, "width": (TensorProto.INT64, [rows, 1])}
            return save(tmp_path / "widened.onnx", nodes, inputs, {"y": port}, {"once": np.array([1])})

        def of_width_two(self) -> Path:
            """y = softmax(tanh(x)) + 0: declared with any width, but runs only with a width of 2"""
            nodes = [
                helper.make_node("Tanh", ["x"], ["t"]),
                helper.make_node("Softmax", ["t"], ["s"]),
                helper.make_node("Add", ["s", "zeros"], ["y"]),
            ]
            ports = {"x": (TensorProto.FLOAT, ["n", "w"])}, {"y": (TensorProto.FLOAT, ["n", "w"])}
            return save(tmp_path / "of_width_two.onnx", nodes, *ports, {"zeros": np.zeros((1, 2), np.float32)})

        def nonzero_indices(self) -> Path:
            """y = indices of the elements that are not zero: the number of rows depends on the values"""
            node = helper.make_node("NonZero", ["x"], ["z"])
            transpose = helper.make_node("Transpose", ["z"], ["y"])
            ports = {"x": (TensorProto.FLOAT, ["n", 2])}, {"y": (TensorProto.INT64, ["k", 2])}
            return save(tmp_path / "nonzero.onnx", [node, transpose], *ports)

        def strings(self) -> Path:
            """y = x, both are strings"""
            node = helper.make_node("Identity", ["x"], ["y"])
            port = (TensorProto.STRING, ["n"])
            return save(tmp_path / "strings.onnx", [node], {"x": port}, {"y": port})

        def shared_names(self) -> Path:
            """One input with two names, and two outputs that are the same tensor"""
            import openvino

            opset8 = opset(8)
            x = opset8.parameter([-1, 2], np.float32, name="x")
            x.output(0).set_names({"x", "also_x"})
            y = opset8.relu(x)
            y.output(0).set_names({"y"})
            model = openvino.Model([opset8.result(y), opset8.result(y)], [x], "shared")
            openvino.save_model(model, tmp_path / "shared.xml", compress_to_fp16=False)
            return tmp_path / "shared.xml"

        def double_ir(self) -> Path:
            """y = x + x, as an OpenVINO IR"""
            import openvino

            openvino.save_model(openvino.convert_model(self.double()), tmp_path / "double.xml", compress_to_fp16=False)
            return tmp_path / "double.xml"

    return Models()


@pytest.fixture
def pipe():
    """pipe(model=…, …) opens a pipe."""
    opened = []

    def make(**config):
        opened.append(hami.pipe({"backend": "OpenvinoTensor", **config}))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def array(request, key="result"):
    """Return the result of a request as a NumPy array."""
    return hami.to_numpy(request[key])


def floats(*values):
    return np.array(values, np.float32)


def values(request):
    return array(request).tolist()


def message(error) -> str:
    return str(error.value).splitlines()[0]

"""ONNX models of many shapes, written with the package onnx, with seeded weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Builder:
    """Adds nodes one after the other; every method returns the name of the output."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, shape, kind=TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def weight(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def random(self, *shape: int) -> str:
        fan = np.prod(shape[1:]) if len(shape) > 1 else 1
        return self.weight((self.rng.standard_normal(shape) / np.sqrt(fan)).astype(np.float32))

    def __call__(self, operator: str, *inputs: str, count: int = 1, **attributes):
        outputs = [f"t{len(self.nodes)}_{index}" for index in range(count)]
        self.nodes.append(helper.make_node(operator, list(inputs), outputs, **attributes))
        return outputs[0] if count == 1 else outputs

    def conv(self, data: str, cin: int, cout: int, size: int = 3, group: int = 1, **attributes) -> str:
        weight = self.random(cout, cin // group, size, size)
        pads = [size // 2] * 4
        return self("Conv", data, weight, self.random(cout), group=group, pads=pads, **attributes)

    def save(self, path: Path, *outputs: str, kind=TensorProto.FLOAT) -> Path:
        ports = [helper.make_tensor_value_info(name, kind, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "net", self.inputs, ports, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.save(onnx.shape_inference.infer_shapes(model), path)
        return path


SHAPES: dict[str, Callable[[Path], Path]] = {}


def shape(build: Callable[[Builder], tuple[str, ...]]) -> Callable[[Builder], tuple[str, ...]]:
    def write(path: Path) -> Path:
        builder = Builder()
        return builder.save(path, *build(builder))

    SHAPES[build.__name__] = write
    return build


@shape
def chain_of_convolutions(b):
    x = b.input("x", ["n", 3, 32, 32])
    for cin, cout in ((3, 16), (16, 32), (32, 32), (32, 16)):
        x = b("Relu", b.conv(x, cin, cout))
    return (x,)


@shape
def residual_blocks(b):
    x = b.conv(b.input("x", [1, 3, 24, 24]), 3, 16)
    for _ in range(4):
        x = b("Relu", b("Add", x, b.conv(b("Relu", b.conv(x, 16, 16)), 16, 16)))
    return (b("GlobalAveragePool", x),)


@shape
def dense_blocks(b):
    x, channels = b.input("x", [1, 4, 16, 16]), 4
    for _ in range(5):
        x = b("Concat", x, b("Relu", b.conv(x, channels, 4)), axis=1)
        channels += 4
    return (x,)


@shape
def inception_branches(b):
    x = b.input("x", [1, 8, 16, 16])
    for _ in range(3):
        branches = [b.conv(x, 8, 2, 1), b.conv(x, 8, 2, 3), b.conv(x, 8, 2, 5)]
        pooled = b("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        x = b("Relu", b("Concat", *branches, b.conv(pooled, 8, 2, 1), axis=1))
    return (x,)


@shape
def unet_with_long_skips(b):
    x, skips = b.input("x", [1, 4, 32, 32]), []
    for _ in range(3):
        x = b("Relu", b.conv(x, 4, 4))
        skips.append(x)
        x = b("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    for skip in reversed(skips):
        x = b("ConvTranspose", x, b.random(4, 4, 2, 2), strides=[2, 2])
        x = b("Relu", b.conv(b("Concat", x, skip, axis=1), 8, 4))
    return (x,)


@shape
def depthwise_and_gates(b):
    x = b.conv(b.input("x", [1, 3, 16, 16]), 3, 12)
    for _ in range(3):
        y = b(
            "Clip", b.conv(b.conv(x, 12, 12, 3, group=12), 12, 12, 1), b.weight(np.float32(0)), b.weight(np.float32(6))
        )
        x = b("Mul", y, b("Sigmoid", b.conv(b("GlobalAveragePool", y), 12, 12, 1)))
    return (x,)


@shape
def perceptron(b):
    x = b.input("x", ["batch", 64])
    for _ in range(6):
        x = b("Relu", b("Gemm", x, b.random(64, 64), b.random(64)))
    return (b("Softmax", x, axis=-1),)


@shape
def transformer(b):
    x = b.input("x", [1, 12, 32])
    for _ in range(2):
        q, k, v = (b("MatMul", x, b.random(32, 32)) for _ in range(3))
        scores = b("Softmax", b("MatMul", q, b("Transpose", k, perm=[0, 2, 1])), axis=-1)
        x = b("LayerNormalization", b("Add", x, b("MatMul", scores, v)), b.random(32), axis=-1)
        wide = b("Tanh", b("MatMul", x, b.random(32, 64)))
        x = b("Add", x, b("MatMul", wide, b.random(64, 32)))
    return (x,)


@shape
def embedding_of_integers(b):
    x = b("Gather", b.random(100, 16), b.input("x", [1, 10], TensorProto.INT64))
    return (b("ReduceMean", b("Relu", b("MatMul", x, b.random(16, 16))), axes=[1]),)


@shape
def lstm(b):
    x = b.input("x", [7, 1, 8])
    y, _, _ = b("LSTM", x, b.random(1, 64, 8), b.random(1, 64, 16), count=3, hidden_size=16)
    y = b("Squeeze", y, b.weight(np.array([1])))
    z, _ = b("GRU", y, b.random(1, 24, 16), b.random(1, 24, 8), count=2, hidden_size=8)
    return (b("Relu", z),)


@shape
def several_inputs_and_outputs(b):
    x, y = b.input("x", [1, 16]), b.input("y", [1, 16])
    early = b("Relu", b("MatMul", x, b.random(16, 16)))
    late = b("Tanh", b("Add", b("MatMul", early, b.random(16, 16)), b("MatMul", y, b.random(16, 16))))
    return early, late, b("Mul", late, y)


@shape
def split_and_join(b):
    x = b.input("x", [1, 8, 12, 12])
    for _ in range(3):
        left, right = b("Split", x, count=2, axis=1)
        x = b("Concat", b.conv(left, 4, 4), b("Relu", right), axis=1)
    return (x,)


@shape
def branch_that_reads_from_outside(b):
    x = b.input("x", [1, 16])
    y = b("Relu", b("MatMul", x, b.random(16, 16)))
    condition = b("Greater", b("ReduceSum", x, keepdims=0), b.weight(np.float32(0)))
    branches = [
        helper.make_graph(
            [helper.make_node(operator, [y], [f"{operator}_out"])],
            operator,
            [],
            [helper.make_tensor_value_info(f"{operator}_out", TensorProto.FLOAT, [1, 16])],
        )
        for operator in ("Tanh", "Neg")
    ]
    z = b("If", condition, then_branch=branches[0], else_branch=branches[1])
    return (b("MatMul", z, b.random(16, 16)),)


@shape
def quantised_with_qdq(b):
    x = b.input("x", [1, 4, 16, 16])
    for _ in range(3):
        scale, zero = b.weight(np.float32(0.05)), b.weight(np.uint8(128))
        x = b("DequantizeLinear", b("QuantizeLinear", x, scale, zero), scale, zero)
        x = b("Relu", b.conv(x, 4, 4))
    return (x,)


@shape
def pyramid_with_resize(b):
    x = b.conv(b.input("x", [1, 3, 16, 16]), 3, 8)
    small = b.conv(b("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), 8, 8)
    up = b("Resize", small, "", b.weight(np.array([1, 1, 2, 2], np.float32)), mode="nearest")
    return b("Add", x, up), small


@shape
def reshapes_and_transposes(b):
    x = b.input("x", [1, 8, 6, 6])
    x = b("Transpose", b("Reshape", b.conv(x, 8, 8), b.weight(np.array([1, 8, 36]))), perm=[0, 2, 1])
    x = b("MatMul", x, b.random(8, 8))
    return (b("Reshape", b("Transpose", x, perm=[0, 2, 1]), b.weight(np.array([1, 8, 6, 6]))),)


@shape
def normalisations(b):
    x = b.input("x", [2, 6, 8, 8])
    x = b("BatchNormalization", b.conv(x, 6, 6), *(b.weight(np.full(6, v, np.float32)) for v in (1.5, 0.1, 0.2, 0.9)))
    x = b("InstanceNormalization", x, b.weight(np.ones(6, np.float32)), b.weight(np.zeros(6, np.float32)))
    return (b("LeakyRelu", x),)


@shape
def one_node(b):
    return (b("Relu", b.input("x", [1, 4])),)


@shape
def deep_and_narrow(b):
    x = b.input("x", [1, 32])
    for _ in range(60):
        x = b("Tanh", b("MatMul", x, b.random(32, 32)))
    return (x,)


def real_models() -> dict[str, Path]:
    """Return the exported models of the package rapidocr, if it is installed."""
    try:
        import rapidocr
    except ImportError:
        return {}
    return {path.stem: path for path in sorted((Path(rapidocr.__file__).parent / "models").glob("*.onnx"))}

"""Write the two ONNX models of the works: a small convolutional network, and a wide one of dense layers.

    python tests/bench/peers/make_models.py DATA

cnn.onnx: the structure of MobileNetV2 at width 0.35, `input` N x 3 x 224 x 224. Batching gains nothing on a CPU.
mlp.onnx: 26 million weights, `input` N x 1024. Reading them costs most, so batching pays, as on a GPU.
Both return `scores` N x 1000. The weights are random with a fixed seed; normalisation is folded into the convolutions.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# Expansion, channels, number of blocks, stride of the first block: the table of the MobileNetV2 paper.
BLOCKS = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
WIDTH = 0.35


class Network:
    """Collects layers and their random weights."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def layer(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        name = output or f"{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, values: np.ndarray) -> str:
        name = f"weight{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def random(self, *shape: int) -> str:
        """Return random weights, scaled so that values keep their magnitude through all layers."""
        return self.constant(self._random.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:])))

    def convolution(self, x: str, taken: int, given: int, size: int = 1, stride: int = 1, groups: int = 1) -> str:
        return self.layer(
            "Conv",
            x,
            self.random(given, taken // groups, size, size),
            self.constant(np.zeros(given)),
            kernel_shape=[size, size],
            strides=[stride, stride],
            pads=[size // 2] * 4,
            group=groups,
        )

    def clipped(self, x: str) -> str:
        return self.layer("Clip", x, self.constant(np.array(0.0)), self.constant(np.array(6.0)))

    def dense(self, x: str, taken: int, given: int, output: str = "") -> str:
        return self.layer("Gemm", x, self.random(given, taken), self.constant(np.zeros(given)), output=output, transB=1)

    def save(self, path: Path, shape: list[int]) -> None:
        graph = helper.make_graph(
            self.nodes,
            path.stem,
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["n", *shape])],
            [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 1000])],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        onnx.save(model, path)
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")


def scaled(channels: int) -> int:
    """Round to a multiple of 8, and never below nine tenths of the exact width."""
    wanted = channels * WIDTH
    rounded = max(8, int(wanted + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * wanted else rounded


def cnn() -> Network:
    net = Network()
    channels = scaled(32)
    x = net.clipped(net.convolution("input", 3, channels, 3, 2))
    for expansion, wanted, count, first_stride in BLOCKS:
        for i in range(count):
            stride, inner, given = first_stride if i == 0 else 1, channels * expansion, scaled(wanted)
            y = x if expansion == 1 else net.clipped(net.convolution(x, channels, inner))
            y = net.clipped(net.convolution(y, inner, inner, 3, stride, inner))
            y = net.convolution(y, inner, given)
            x = net.layer("Add", x, y) if stride == 1 and channels == given else y
            channels = given
    x = net.clipped(net.convolution(x, channels, 1280))
    net.dense(net.layer("Flatten", net.layer("GlobalAveragePool", x)), 1280, 1000, "scores")
    return net


def mlp() -> Network:
    net = Network()
    x = net.layer("Relu", net.dense("input", 1024, 4096))
    x = net.layer("Relu", net.dense(x, 4096, 4096))
    net.dense(x, 4096, 1000, "scores")
    return net


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    cnn().save(folder / "cnn.onnx", [3, 224, 224])
    mlp().save(folder / "mlp.onnx", [1024])


if __name__ == "__main__":
    main()

"""The first program that users write: one flat config, one pipe, many threads that call it, an image classifier."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hami as tp
import numpy as np
import onnxruntime
import pytest
from conftest import save
from onnx import NodeProto, TensorProto, helper

THREADS = 8
CALLS = 3  # of each thread


class Network:
    """Collects the nodes and random weights of a network, layer by layer."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self._random = np.random.default_rng(18)

    def layer(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def weight(self, *shape: int) -> str:
        """Random, and scaled so that values stay of one size through all layers."""
        name = f"weight{len(self.weights)}"
        scale = np.sqrt(2 / np.prod(shape[1:]))
        self.weights[name] = (self._random.standard_normal(shape) * scale).astype(np.float32)
        return name

    def convolution(self, x: str, channels: tuple[int, int], size: int, stride: int) -> str:
        weight, pads = self.weight(channels[1], channels[0], size, size), [size // 2] * 4
        return self.layer("Conv", x, weight, kernel_shape=[size, size], strides=[stride, stride], pads=pads)

    def residual(self, x: str, channels: tuple[int, int], stride: int) -> str:
        """Two convolutions, and the way around them, with a convolution of its own where the shape changes."""
        inner = self.layer("Relu", self.convolution(x, channels, 3, stride))
        inner = self.convolution(inner, (channels[1], channels[1]), 3, 1)
        around = x if stride == 1 else self.convolution(x, channels, 1, stride)
        return self.layer("Relu", self.layer("Add", inner, around))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The structure of ResNet-18 with random weights, its normalisation folded into the convolutions."""
    net = Network()
    x = net.layer("Relu", net.convolution("image", (3, 64), 7, 2))
    x = net.layer("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for channels, stride in [((64, 64), 1), ((64, 128), 2), ((128, 256), 2), ((256, 512), 2)]:
        x = net.residual(x, channels, stride)
        x = net.residual(x, (channels[1], channels[1]), 1)
    x = net.layer("Flatten", net.layer("GlobalAveragePool", x))
    net.nodes.append(helper.make_node("Gemm", [x, net.weight(1000, 512)], ["scores"], transB=1))
    ports = (
        {"image": (TensorProto.FLOAT, ["n", 3, 224, 224])},
        {"scores": (TensorProto.FLOAT, ["n", 1000])},
    )
    return save(tmp_path_factory.mktemp("model") / "resnet18.onnx", net.nodes, *ports, net.weights)


@pytest.fixture(scope="module")
def images() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.random((1, 3, 224, 224), dtype=np.float32) for _ in range(THREADS)]


@pytest.fixture(scope="module")
def expected(model: Path, images: list[np.ndarray]) -> list[np.ndarray]:
    """What onnxruntime says by itself, image by image."""
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    return [session.run(None, {"image": image})[0] for image in images]


def call_from_threads(model: Path, images: list[Any], from_dlpack: Any) -> tuple[list[list[Any]], dict[str, Any]]:
    """Run the program; give each thread's results and the counts of the node."""
    config = {
        "instance_num": 2,
        "batching_timeout": 5,
        "backend": "OnnxTensor",
        "model": str(model),
        "max": 4,
    }
    models = tp.pipe(config)
    together = threading.Barrier(THREADS)

    def run(image: Any) -> list[Any]:
        together.wait()
        results = []
        for _ in range(CALLS):
            input = {"data": image}
            models(input)
            results.append(from_dlpack(input["result"]))
        return results

    try:
        with ThreadPoolExecutor(THREADS) as threads:
            return list(threads.map(run, images)), models.stats()["default"]
    finally:
        models.close()


def check(results: list[list[Any]], expected: list[np.ndarray], counts: dict[str, Any]) -> None:
    assert (
        max(np.abs(scores).max() for scores in expected) > 0.1
    )  # the network says something, and of each image its own
    assert not np.allclose(expected[0], expected[1], rtol=1e-3, atol=1e-3)
    for of_thread, scores in zip(results, expected, strict=True):
        for result in of_thread:
            assert tuple(result.shape) == (1, 1000)
            np.testing.assert_allclose(np.asarray(result), scores, rtol=1e-3, atol=1e-4)
    assert (counts["requests"], counts["failed"]) == (THREADS * CALLS, 0)
    assert counts["items"] / counts["batches"] <= 4


def test_with_numpy(model: Path, images: list[np.ndarray], expected: list[np.ndarray]) -> None:
    results, counts = call_from_threads(model, images, np.from_dlpack)
    check(results, expected, counts)


def test_with_torch(model: Path, images: list[np.ndarray], expected: list[np.ndarray]) -> None:
    torch = pytest.importorskip("torch", reason="this is the program as it is written with torch")
    tensors = [torch.from_numpy(image) for image in images]
    results, counts = call_from_threads(model, tensors, torch.from_dlpack)
    assert all(isinstance(result, torch.Tensor) for of_thread in results for result in of_thread)
    check(results, expected, counts)

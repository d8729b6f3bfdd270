"""A typical first program: an image classifier with a flat configuration, one pipe and many calling threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hami
import numpy as np
import onnxruntime
import pytest
from conftest import save
from onnx import NodeProto, TensorProto, helper

THREADS = 8
CALLS = 3  # of each thread


class Network:
    """Collects the nodes and random weights of a network."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self._random = np.random.default_rng(18)

    def layer(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def weight(self, *shape: int) -> str:
        """Add random weights, scaled to keep the magnitude of the values through all layers."""
        name = f"weight{len(self.weights)}"
        scale = np.sqrt(2 / np.prod(shape[1:]))
        self.weights[name] = (self._random.standard_normal(shape) * scale).astype(np.float32)
        return name

    def convolution(self, x: str, channels: tuple[int, int], size: int, stride: int) -> str:
        weight, pads = self.weight(channels[1], channels[0], size, size), [size // 2] * 4
        return self.layer("Conv", x, weight, kernel_shape=[size, size], strides=[stride, stride], pads=pads)

    def residual(self, x: str, channels: tuple[int, int], stride: int) -> str:
        """Two convolutions and a shortcut, which has its own convolution if the shape changes."""
        inner = self.layer("Relu", self.convolution(x, channels, 3, stride))
        inner = self.convolution(inner, (channels[1], channels[1]), 3, 1)
        shortcut = x if stride == 1 else self.convolution(x, channels, 1, stride)
        return self.layer("Relu", self.layer("Add", inner, shortcut))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ResNet-18 with random weights; the normalisation is folded into the convolutions."""
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
    """The scores that onnxruntime computes directly, image by image."""
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    return [session.run(None, {"image": image})[0] for image in images]


def call_from_threads(
    model: Path, images: list[Any], from_dlpack: Any
) -> tuple[list[list[Any]], hami.observe.NodeStats]:
    """Run the program. Returns the results of each thread and the statistics of the node."""
    config = {
        "instance_num": 2,
        "batching_timeout": 5,
        "backend": "OnnxTensor",
        "model": str(model),
        "max": 4,
    }
    pipe = hami.pipe(config)
    barrier = threading.Barrier(THREADS)

    def run(image: Any) -> list[Any]:
        barrier.wait()
        results = []
        for _ in range(CALLS):
            request = {"data": image}
            pipe(request)
            results.append(from_dlpack(request["result"]))
        return results

    try:
        with ThreadPoolExecutor(THREADS) as threads:
            return list(threads.map(run, images)), pipe.stats()["default"]
    finally:
        pipe.close()


def check(results: list[list[Any]], expected: list[np.ndarray], stats: hami.observe.NodeStats) -> None:
    # The scores are not trivial and differ between images.
    assert max(np.abs(scores).max() for scores in expected) > 0.1
    assert not np.allclose(expected[0], expected[1], rtol=1e-3, atol=1e-3)
    for thread_results, scores in zip(results, expected, strict=True):
        for result in thread_results:
            assert tuple(result.shape) == (1, 1000)
            np.testing.assert_allclose(np.asarray(result), scores, rtol=1e-3, atol=1e-4)
    assert (stats.submitted, stats.completed) == (THREADS * CALLS, THREADS * CALLS)
    assert stats.batch_items / stats.batches <= 4


def test_many_threads_get_correct_scores_for_numpy_arrays(
    model: Path, images: list[np.ndarray], expected: list[np.ndarray]
) -> None:
    results, stats = call_from_threads(model, images, np.from_dlpack)
    check(results, expected, stats)


def test_many_threads_get_correct_scores_for_torch_tensors(
    model: Path, images: list[np.ndarray], expected: list[np.ndarray]
) -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    tensors = [torch.from_numpy(image) for image in images]
    results, stats = call_from_threads(model, tensors, torch.from_dlpack)
    assert all(isinstance(result, torch.Tensor) for thread_results in results for result in thread_results)
    check(results, expected, stats)

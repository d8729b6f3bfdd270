"""The works: the payload of a request, the model that runs on it, and the node of HAMi for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Model = Callable[[list[Any]], list[Any]]


@dataclass(frozen=True)
class Work:
    """A model that takes up to `max_batch` prepared requests at once, in `instances` copies."""

    make_model: Callable[[], Model]
    payloads: Callable[[], list[Any]] = lambda: [b"x" * 64]
    prepare: Callable[[Any], Any] = lambda payload: payload
    node: dict[str, Any] = field(
        default_factory=dict
    )  # of HAMi; without a backend it is a Python backend around the model
    best: dict[str, Any] = field(default_factory=dict)  # keys of the fastest node, where `node` is as its peers are
    answer: Callable[[Any], Any] = lambda result: result  # from HAMi's `result`
    max_batch: int = 1
    instances: int = 1
    wait: float = 0.0  # queue delay of the hand-written batcher, in seconds
    gains: bool = True  # from batches; if not, the limit is measured with single requests


JPEG_TO_BEST = "S[DecodeMat(color=rgb),ResizeMat(224,224),Mat2Tensor,NormalizeTensor,OnnxTensor,TopKTensor(5)]"


def works(data: Path) -> dict[str, Work]:
    # The same keys whether the model gains from batches or not: adaptive batching finds out.
    scheduling = {"max": 32, "batching_timeout": 0}
    return {
        "identity": Work(lambda: list, node={"backend": "Identity"}),
        "worker": Work(lambda: list, node={"backend": "BackgroundThread[Identity]"}),
        "sleep": Work(lambda: sleeper(0.001, 0), max_batch=8),
        "fake": Work(lambda: sleeper(0.004, 0.0002), max_batch=32, wait=0.002),
        "mlp": Work(
            lambda: classifier(data / "mlp.onnx"),
            payloads=vectors,
            node={
                "backend": "S[OnnxTensor,TopKTensor(5)]",
                "model": str(data / "mlp.onnx"),
                "threads": 1,
                "instance_num": 1,
                **scheduling,
            },
            best={"threads": 0},
            answer=indices,
            max_batch=32,
            wait=0.002,
        ),
        "jpeg": Work(
            lambda: classifier(data / "cnn.onnx"),
            payloads=lambda: [file.read_bytes() for file in sorted((data / "jpeg").iterdir())],
            prepare=decoded,
            node={
                "backend": JPEG_TO_BEST,
                "model": str(data / "cnn.onnx"),
                "mean": [127.0],
                "std": [128.0],
                "threads": 1,
                "instance_num": 2,
                **scheduling,
            },
            answer=indices,
            max_batch=32,
            instances=2,
            wait=0.002,
            gains=False,
        ),
    }


def sleeper(once: float, each: float) -> Model:
    """A simulated accelerator: `once` seconds per batch plus `each` per item, without CPU time."""

    def run(inputs: list[Any]) -> list[Any]:
        time.sleep(once + each * len(inputs))
        return inputs

    return run


def classifier(path: Path) -> Model:
    """The five best classes of each input, by onnxruntime on one thread, as in the node of HAMi."""
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(inputs: list[Any]) -> list[Any]:
        scores = session.run(None, {"input": inputs[0][None] if len(inputs) == 1 else np.stack(inputs)})[0]
        best = np.argpartition(scores, -5, axis=1)[:, -5:]
        return [five[np.argsort(-row[five])].tolist() for row, five in zip(scores, best, strict=True)]

    return run


def decoded(jpeg: bytes) -> Any:
    import cv2
    import numpy as np

    pixels = cv2.resize(cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR), (224, 224))
    return cv2.dnn.blobFromImage(pixels, 1 / 128, (224, 224), (127, 127, 127), swapRB=True)[0]


def vectors() -> list[Any]:
    import numpy as np

    return list(np.random.default_rng(0).standard_normal((16, 1024)).astype(np.float32))


def indices(result: Any) -> list[int]:
    import numpy as np

    return np.from_dlpack(result["indices"]).ravel().tolist()

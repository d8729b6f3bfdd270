"""The ONNX files of rapidocr: joined by default, and equal alone and beside other requests."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

rapidocr = pytest.importorskip("rapidocr", reason="its wheel ships the files")
FILES = sorted((Path(rapidocr.__file__).parent / "models").glob("*.onnx"))
HEIGHTS = {"rec": 48, "cls": 48}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("instances", [1, 3])
def test_callers_get_what_each_gets_alone(pipe, path, instances):
    height = next((size for part, size in HEIGHTS.items() if part in path.stem), 64)
    generator = np.random.default_rng(0)
    images = [
        (generator.standard_normal((1, 3, height, 192)) * scale).astype(np.float32) for scale in (0.1, 1, 1, 5, 0.5, 2)
    ]
    running = pipe(model=str(path), max=4, instance_num=instances, batching_timeout=50)
    alone = [running({"data": image})["result"] for image in images]
    requests = [{"data": image} for image in images]
    barrier = threading.Barrier(len(requests))

    def call(request):
        barrier.wait()
        running(request)

    threads = [threading.Thread(target=call, args=[request]) for request in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for own, request in zip(alone, requests, strict=True):
        np.testing.assert_allclose(request["result"], own, rtol=0, atol=1e-4 * max(1.0, float(np.abs(own).max())))


def test_there_are_files():
    assert len(FILES) >= 3

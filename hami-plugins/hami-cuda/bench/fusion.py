"""Compare a chain of image backends that runs as one launch with the same chain as one launch for each backend."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import hami
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "hami-torch" / "bench"))
from _workload import interleaved, medians, ratio, result

SECONDS = float(os.environ.get("HAMI_BENCH_SECONDS", "1"))
ROUNDS = int(os.environ.get("HAMI_BENCH_ROUNDS", "5"))
BATCH = 32
CHAIN = ("ResizeTensor", "CvtColorTensor", "NormalizeTensor", "CatTensor", "SyncTensor")
KEYS: dict[str, Any] = {
    "backend": f"S[{','.join(f'hami-cuda::{name}' for name in CHAIN)}]",
    "width": 224,
    "height": 224,
    "color": "bgr",
    "mean": "0.485,0.456,0.406",
    "std": "0.229,0.224,0.225",
    "scale": 1 / 255,
    "max": BATCH,
    "batching": "greedy",
}


def images_per_second(pipe: hami.Pipe, tensors: list[Any]) -> float:
    """Return images per second of batches that one caller sends, one after the other."""
    images = sum(tensor.shape[0] for tensor in tensors)
    started, batches = time.perf_counter(), 0
    while time.perf_counter() - started < SECONDS:
        for _ in range(10):
            pipe([{"data": tensor} for tensor in tensors])
        batches += 10
    return batches * images / (time.perf_counter() - started)


def main() -> None:
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (BATCH, 3, 480, 640), np.uint8)
    with hami.pipe("S[hami-cuda::GpuTensor,hami-cuda::SyncTensor]") as move:
        together = [move({"data": pixels})["result"]]
        single = [move({"data": pixels[i : i + 1]})["result"] for i in range(BATCH)]
    pipes = {"fused": hami.pipe(KEYS), "one by one": hami.pipe({**KEYS, "fuse": False})}
    for what, tensors in (("images in one request", together), ("requests of one image", single)):
        calls = {
            name: (lambda pipe=pipe, tensors=tensors: images_per_second(pipe, tensors)) for name, pipe in pipes.items()
        }
        interleaved(calls, 1)
        samples = interleaved(calls, ROUNDS)
        metric = f"Resize, color, normalize, cat of a batch of {BATCH} {what}: fused / one by one"
        result(metric, ratio(samples, "fused", "one by one"), at_least=2.0, images_per_s=medians(samples))
    for pipe in pipes.values():
        pipe.close()


if __name__ == "__main__":
    main()

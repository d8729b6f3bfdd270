"""What a JPEG file costs beside its decoding: the check of its header, and the pass from the image to the tensor.

    python tests/bench/image_steps.py [--rounds 7] [--calls 100]

A picture of 640 x 480 becomes a normalised tensor 1 x 3 x 224 x 224. Contenders alternate call by call, and OpenCV has
one thread. The times are processor time of the calling thread, which other programs disturb least.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import cv2
import hami
import numpy as np
from _measure import about_hami, about_this_machine

SIZE = 224
MEAN = np.array([0.485, 0.456, 0.406])
STD = np.array([0.229, 0.224, 0.225])
SCALE = 1 / 255
NORMALIZE = {"mean": MEAN.tolist(), "std": STD.tolist(), "scale": SCALE, "width": SIZE, "height": SIZE}
CHAIN = "ResizeMat,Mat2Tensor,NormalizeTensor"


def jpeg() -> bytes:
    random = np.random.default_rng(1)
    coarse = cv2.resize(random.integers(0, 256, (48, 64, 3), np.uint8), (640, 480))
    return cv2.imencode(".jpg", coarse + random.integers(0, 6, coarse.shape, np.uint8))[1].tobytes()


def decoded(data: bytes) -> Any:
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_BGR)


def tensor(image: Any) -> Any:
    """The usual code: OpenCV resizes and moves the channels first, NumPy normalises."""
    planes = cv2.dnn.blobFromImage(cv2.resize(image, (SIZE, SIZE)))
    planes *= (SCALE / STD).astype(np.float32).reshape(-1, 1, 1)
    planes += (-MEAN / STD).astype(np.float32).reshape(-1, 1, 1)
    return planes


def answer(pipe: hami.Pipe) -> Callable[[Any], Any]:
    return lambda data: pipe({"data": data})["result"]


def medians(contenders: dict[str, Callable[[], Any]], calls: int) -> dict[str, float]:
    """Return the median of each contender. They alternate, as each finds the caches that another one left."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(calls):
        for name, call in contenders.items():
            start = time.thread_time_ns()
            call()
            found[name].append((time.thread_time_ns() - start) / 1e3)
    return {name: statistics.median(times) for name, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=100)
    options = parser.parse_args()
    cv2.setNumThreads(1)
    data = jpeg()
    image = decoded(data)
    with (
        hami.pipe({"backend": f"S[DecodeMat,{CHAIN}]", **NORMALIZE}) as whole,
        hami.pipe({"backend": f"S[DecodeMat,{CHAIN}]", **NORMALIZE, "fuse": False}) as apart,
        hami.pipe({"backend": f"S[{CHAIN}]", **NORMALIZE}) as steps,
        hami.pipe("DecodeMat") as decode,
    ):
        assert np.allclose(hami.to_numpy(answer(whole)(data)), tensor(image), atol=1e-5)
        contenders: dict[str, Callable[[], Any]] = {
            "decode": lambda: decoded(data),
            "direct": lambda: tensor(decoded(data)),
            "hami": lambda: answer(whole)(data),
            "apart": lambda: answer(apart)(data),
            "DecodeMat": lambda: answer(decode)(data),
            "steps": lambda: answer(steps)(image),
        }
        rounds = [medians(contenders, options.calls) for _ in range(options.rounds + 1)]  # the first one warms up
    print(f"{about_hami()}; {about_this_machine()}; {len(data):,} bytes of JPEG; processor time in µs\n")
    print("| | median (min … max) |\n|---|---|")
    figures: dict[str, Callable[[dict[str, float]], float]] = {
        "decoding alone": lambda r: r["decode"],
        "direct code, all but decoding": lambda r: r["direct"] - r["decode"],
        "HAMi, all but decoding": lambda r: r["hami"] - r["decode"],
        "… with `fuse = false`": lambda r: r["apart"] - r["decode"],
        "… the check of the header": lambda r: r["DecodeMat"] - r["decode"],
        "… a pipe of the other steps": lambda r: r["steps"],
        "HAMi / direct code, with decoding": lambda r: r["hami"] / r["direct"],
    }
    for name, figure in figures.items():
        found = sorted(map(figure, rounds[1:]))
        print(f"| {name} | {statistics.median(found):.3g} ({found[0]:.3g} … {found[-1]:.3g}) |")


if __name__ == "__main__":
    main()

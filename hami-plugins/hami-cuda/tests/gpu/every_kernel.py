"""Run every kernel on small inputs: `compute-sanitizer --tool racecheck python every_kernel.py`."""

from __future__ import annotations

from typing import Any

import hami
import numpy as np

RANDOM = np.random.default_rng(1)
IMAGES = [RANDOM.integers(0, 256, (1, 3, *size), np.uint8) for size in ((20, 30), (1, 1), (64, 5), (119, 161))]
SCORES = [RANDOM.standard_normal(shape).astype(np.float32) for shape in ((3, 1000), (5, 7), (1, 1), (2, 300))]
BOXES: list[dict[str, Any]] = []
for count in (700, 1, 0, 40):
    corners = RANDOM.random((count, 2)) * 100
    boxes = np.hstack([corners, corners + RANDOM.random((count, 2)) * 40]).astype(np.float32)
    scores, classes = RANDOM.random(count).astype(np.float32), RANDOM.integers(0, 3, count)
    BOXES.append({"boxes": boxes, "scores": scores, "classes": classes})

LETTER_BOX = {"scale": 0.75, "left": 3, "top": 0, "image_width": 60, "image_height": 70}
CHAINS: dict[str, list[Any]] = {
    "ResizeTensor(width=33,height=17),CvtColorTensor(color=gray)": IMAGES,
    "ResizeTensor(width=70,height=3,rounded=false),CatTensor,SplitTensor": IMAGES,
    "ResizeTensor(width=33,height=17,interpolation=area)": IMAGES,
    "ResizeTensor(width=33,height=17,interpolation=cubic)": IMAGES,
    "ResizeTensor(width=33,height=17,antialias=true),hami-cuda::NormalizeTensor(dtype=float16)": IMAGES,
    "LetterBoxTensor(width=40,height=24),CvtColorTensor(color=bgr)": IMAGES,
    "WarpAffineTensor(width=40,height=24,matrix='0.8,-0.6,5,0.6,0.8,-3')": IMAGES,
    "CropTensor(box='0,0,20,1'),ContiguousTensor": IMAGES,
    "hami-cuda::SoftmaxTensor": SCORES,
    "hami-cuda::ArgMaxTensor": SCORES,
    "hami-cuda::TopKTensor(k=1)": SCORES,
    "hami-cuda::FixTensor(dtype=float64)": SCORES,
    "hami-cuda::NmsTensor,hami-cuda::RestoreBoxes": BOXES,
}


def main() -> None:
    for chain, data in CHAINS.items():
        config = {"backend": f"S[GpuTensor,{chain},hami-cuda::CpuTensor]", "max": len(data), "batching": "greedy"}
        with hami.pipe(config) as pipe:
            pipe([{"data": each, "letter_box": LETTER_BOX} for each in data])
    print("every kernel ran")


if __name__ == "__main__":
    main()

"""Compares the results of image operations of torchpipe and HAMi on five photographs, on the CPU.

    python tests/bench/torchpipe_results.py theirs OUT.npz    with torchpipe 0.2.25, omniback 0.2.24 and their torch
    python tests/bench/torchpipe_results.py ours OUT.npz      with hami-core, hami-image and hami-torch
    python tests/bench/torchpipe_results.py table THEIRS.npz OURS.npz

The photographs are JPEG files made from images that scikit-image ships; both runs read the same folder, --photographs.
DecodeTensor of torchpipe needs CUDA, so the operations on tensors get an image that OpenCV decoded, on both sides.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "rocket", "retina")
SIZE = {"resize_h": "224", "resize_w": "224"}
CPU = {"device": "cpu"}  # of Mat2Tensor in torchpipe, and of the tensor backends in HAMi
# operation: expression in torchpipe, expression in HAMi, keys, and whether `data` is the decoded image as a tensor
OPERATIONS: dict[str, tuple[str, str, dict[str, str], bool]] = {
    "DecodeMat": ("S[DecodeMat,Mat2Tensor]", "S[DecodeMat,Mat2Tensor(layout=hwc,dtype=uint8)]", {}, False),
    "ResizeMat": (
        "S[DecodeMat,ResizeMat,Mat2Tensor]",
        "S[DecodeMat,ResizeMat,Mat2Tensor(layout=hwc,dtype=uint8)]",
        SIZE,
        False,
    ),
    "CvtColorMat": (
        "S[DecodeMat,CvtColorMat,Mat2Tensor]",
        "S[DecodeMat,CvtColorMat,Mat2Tensor(layout=hwc,dtype=uint8)]",
        {"color": "rgb"},
        False,
    ),
    "LetterBoxMat": (
        "S[DecodeMat,LetterBoxMat,Mat2Tensor]",
        "S[DecodeMat,LetterBoxMat(pad=0),Mat2Tensor(layout=hwc,dtype=uint8)]",
        SIZE,
        False,
    ),
    "TopLeftResizeMat": (
        "S[DecodeMat,TopLeftResizeMat,Mat2Tensor]",
        "S[DecodeMat,TopLeftResizeMat,Mat2Tensor(layout=hwc,dtype=uint8)]",
        SIZE,
        False,
    ),
    "ResizeTensor, defaults of HAMi": ("ResizeTensor", "ResizeTensor", SIZE, True),
    "ResizeTensor(align_corners=true, rounded=false)": (
        "ResizeTensor",
        "ResizeTensor(align_corners=true,rounded=false)",
        SIZE,
        True,
    ),
    "CvtColorTensor": ("CvtColorTensor", "CvtColorTensor", {"color": "rgb"}, True),
}


def write_photographs(folder: Path) -> None:
    import cv2
    import skimage.data

    folder.mkdir(parents=True, exist_ok=True)
    for name in PHOTOGRAPHS:
        image = getattr(skimage.data, name)()
        cv2.imwrite(str(folder / f"{name}.jpg"), image[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, 92])


def inputs(folder: Path, is_tensor: bool) -> dict[str, Any]:
    import cv2

    files = {name: folder / f"{name}.jpg" for name in PHOTOGRAPHS}
    if not is_tensor:
        return {name: file.read_bytes() for name, file in files.items()}
    images = {name: cv2.imread(str(file)) for name, file in files.items()}
    return {name: np.ascontiguousarray(image.transpose(2, 0, 1))[None] for name, image in images.items()}


def run_theirs(folder: Path) -> dict[str, np.ndarray]:
    import omniback
    import torch
    import torchpipe  # noqa: F401 (registers its backends)

    results = {}
    for operation, (expression, _, keys, is_tensor) in OPERATIONS.items():
        backend = omniback.init(expression, {**keys, **CPU})
        for name, data in inputs(folder, is_tensor).items():
            request: dict[str, Any] = {"data": torch.from_numpy(data) if is_tensor else data}
            if is_tensor:
                request["color"] = "bgr"
            backend(request)
            results[f"{operation}/{name}"] = torch.from_dlpack(request["result"]).numpy()
            results[f"{operation}/{name}/color"] = np.array(str(request.get("color", "")))
    return results


def run_ours(folder: Path) -> dict[str, np.ndarray]:
    import hami

    results = {}
    for operation, (_, expression, keys, is_tensor) in OPERATIONS.items():
        with hami.pipe({"backend": expression, **keys, **(CPU if is_tensor else {})}) as pipe:
            for name, data in inputs(folder, is_tensor).items():
                request: dict[str, Any] = {"data": data}
                if is_tensor:
                    request["color"] = "bgr"
                pipe(request)
                results[f"{operation}/{name}"] = hami.to_numpy(request["result"])
                results[f"{operation}/{name}/color"] = np.array(str(request.get("color", "")))
    return results


def table(theirs: Path, ours: Path) -> None:
    one, other = np.load(theirs), np.load(ours)
    print("| operation | torchpipe | HAMi | key `color` | largest difference |\n|---|---|---|---|---|")
    for operation in OPERATIONS:
        names = [f"{operation}/{name}" for name in PHOTOGRAPHS]
        pairs = [(one[name], other[name]) for name in names]
        colors = {f"{one[name + '/color']} / {other[name + '/color']}" for name in names}
        kinds = [f"{array.dtype} {' x '.join(map(str, array.shape))}" for array in pairs[0]]
        if any(a.shape != b.shape for a, b in pairs):
            difference = "shapes differ"
        else:
            difference = f"{max(float(np.abs(a.astype(np.float64) - b).max()) for a, b in pairs):.6g}"
        print(f"| {operation} | {kinds[0]} | {kinds[1]} | {', '.join(sorted(colors))} | {difference} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["theirs", "ours", "table"])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--photographs", type=Path, default=Path("build/photographs"))
    arguments = parser.parse_args()
    if arguments.step == "table":
        table(*arguments.files)
        return
    if not arguments.photographs.is_dir():
        write_photographs(arguments.photographs)
    run = run_theirs if arguments.step == "theirs" else run_ours
    np.savez(arguments.files[0], **run(arguments.photographs))


if __name__ == "__main__":
    main()

"""Check the pixels of DecodeTensor: each of about 140 files alone, then in mixed lists and from 64 callers.

A result in a list or from a caller must be bit-equal to that of the file alone, and that within a bound of OpenCV.
Damaged files are among them as neighbors. Their own pixels are not compared: the hardware decodes some of them without
an error, and not always the same.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import hami
import numpy as np
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "hami-torch" / "bench"))
from _workload import log, result

REQUESTS = int(os.environ.get("HAMI_PIXELS_REQUESTS", "20000"))  # in lists, and again from callers
CALLERS = 64
SUBSAMPLINGS = {"4:2:0": 0x221111, "4:2:2": 0x211111, "4:4:0": 0x121111, "4:4:4": 0x111111, "4:1:1": 0x411111}
BOUND = 3  # the largest difference to OpenCV
BOUNDS = {"other formats and coding": 0}  # which OpenCV decodes
DAMAGED = "damaged"
SIZES = [(1, 1), (2, 3), (8, 8), (17, 33), (33, 17), (64, 64), (100, 75), (255, 257), (640, 480), (1920, 1080)]
LARGE = 3000, 2000
CONFIGS: dict[str, dict[str, Any]] = {
    "default configuration": {"backend": "S[DecodeTensor,SyncTensor]"},
    "two instances of 16": {"backend": "S[DecodeTensor,SyncTensor]", "max": 16, "instance_num": 2},
    "one instance of 140, without a wait": {"backend": "DecodeTensor", "max": 140, "batching": "greedy"},
}
ORIENTATION = 0x0112  # tag of EXIF


class File(NamedTuple):
    """A file, and its row in the table of differences."""

    kind: str
    data: bytes
    pixels: int


def picture(width: int, height: int) -> Any:
    """Return a colorful picture with smooth parts, edges and noise."""
    random = np.random.default_rng(width * 10007 + height)
    coarse = Image.fromarray(random.integers(0, 256, (height // 16 + 2, width // 16 + 2, 3), dtype=np.uint8))
    pixels = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC)).astype(int)
    return (pixels + random.integers(-12, 13, pixels.shape)).clip(0, 255).astype(np.uint8)


def by_opencv(extension: str, pixels: Any, *flags: int) -> bytes:
    return bytes(cv2.imencode(extension, pixels[..., ::-1] if pixels.ndim == 3 else pixels, flags)[1])


def by_pillow(format: str, pixels: Any, mode: str = "RGB", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, format, **options)
    return file.getvalue()


def files() -> list[File]:
    """Return files of all kinds; large ones are last."""
    found: list[File] = []

    def add(kind: str, size: tuple[int, int], data: bytes) -> None:
        found.append(File(kind, data, size[0] * size[1]))

    def sampled(factor: int, *flags: int) -> tuple[int, ...]:
        return cv2.IMWRITE_JPEG_SAMPLING_FACTOR, factor, cv2.IMWRITE_JPEG_QUALITY, 90, *flags

    for (name, factor), progressive in itertools.product(SUBSAMPLINGS.items(), (0, 1)):
        for size in SIZES:
            data = by_opencv(".jpg", picture(*size), *sampled(factor, cv2.IMWRITE_JPEG_PROGRESSIVE, progressive))
            add(name, size, data)
    for size, progressive in itertools.product([(1, 1), (33, 17), (640, 480)], (False, True)):
        add("gray", size, by_pillow("JPEG", picture(*size), "L", progressive=progressive))
    for size, factor in itertools.product([(33, 17), (640, 480)], (0x221111, 0x111111)):
        add(
            "restart markers",
            size,
            by_opencv(".jpg", picture(*size), *sampled(factor, cv2.IMWRITE_JPEG_RST_INTERVAL, 2)),
        )
    others = "other formats and coding"
    for size, progressive in itertools.product([(17, 33), (100, 75)], (False, True)):
        add(others, size, by_pillow("JPEG", picture(*size), keep_rgb=True, progressive=progressive))
    for size in [(17, 33), (100, 75)]:
        add(others, size, by_pillow("JPEG", picture(*size), "CMYK"))
        for mode in ("RGB", "L", "P", "RGBA"):
            add(others, size, by_pillow("PNG", picture(*size), mode))
        add(others, size, by_opencv(".webp", picture(*size), cv2.IMWRITE_WEBP_QUALITY, 90))
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[ORIENTATION] = orientation
        size = 40 + orientation, 30
        data = by_pillow(
            "JPEG", picture(*size), exif=exif, progressive=orientation % 2 == 0, subsampling=orientation % 3
        )
        add("EXIF orientation", size, data)
    for progressive in (False, True):
        whole = by_pillow("JPEG", picture(200, 150), progressive=progressive)
        middle = len(whole) // 2
        add(DAMAGED, (200, 150), whole[:200])
        add(DAMAGED, (200, 150), whole[:-3000])
        add(DAMAGED, (200, 150), whole[:middle] + bytes(500) + whole[middle + 500 :])
        add(DAMAGED, (200, 150), whole[:middle] + whole[-2:])
    for progressive in (0, 1):
        data = by_opencv(".jpg", picture(*LARGE), *sampled(0x221111, cv2.IMWRITE_JPEG_PROGRESSIVE, progressive))
        add("4:2:0", LARGE, data)
    return found


def tensor_of(request: dict[str, Any]) -> Any:
    """Return the result as a tensor on the device; None if the request failed."""
    return torch.from_dlpack(request["result"]) if "result" in request else None


def decode_alone(given: list[File]) -> list[Any]:
    """Decode each file by itself, and compare it with OpenCV."""
    alone = []
    differences: dict[str, list[tuple[float, int]]] = {}
    with hami.pipe({"backend": "S[DecodeTensor,SyncTensor]", "max": 1, "instance_num": 1}) as pipe:
        for file in given:
            request: dict[str, Any] = {"data": file.data}
            with contextlib.suppress(hami.Error):
                pipe(request)
            tensor = tensor_of(request)
            alone.append(tensor if tensor is None else tensor.clone())
            if tensor is None or file.kind == DAMAGED:
                continue
            expected = cv2.imdecode(np.frombuffer(file.data, np.uint8), cv2.IMREAD_COLOR_RGB).transpose(2, 0, 1)
            off = np.abs(tensor.cpu().numpy()[0].astype(int) - expected)
            differences.setdefault(file.kind, []).append((float(off.mean()), int(off.max())))
    for kind, each in differences.items():
        mean = round(max(mean for mean, _ in each), 2)
        largest = max(largest for _, largest in each)
        bound = BOUNDS.get(kind, BOUND)
        result(f"Largest difference of a decoded file to OpenCV: {kind}", largest, at_most=bound, largest_mean=mean)
    return alone


def is_wrong(request: dict[str, Any], file: File, expected: Any) -> bool:
    if file.kind == DAMAGED:
        return False
    tensor = tensor_of(request)
    if tensor is None or expected is None:
        return tensor is not expected
    return tensor.shape != expected.shape or not torch.equal(tensor, expected)


def likelihood(given: list[File]) -> Any:
    """Return how often each file is drawn: large ones are rare, so that they do not take most of the time."""
    weights = np.array([min(1.0, 640 * 480 / file.pixels) ** 2 for file in given])
    return weights / weights.sum()


def in_lists(pipe: Any, given: list[File], alone: list[Any], count: int, random: Any) -> Counter[str]:
    """Return the number of wrong results of mixed lists, by kind of file."""
    wrong: Counter[str] = Counter()
    done = 0
    while done < count:
        chosen = random.choice(len(given), size=int(random.integers(8, 141)), p=likelihood(given))
        requests: list[dict[str, Any]] = [{"data": given[index].data} for index in chosen]
        with contextlib.suppress(hami.BatchError):
            pipe(requests)
        wrong.update(
            given[i].kind for i, request in zip(chosen, requests, strict=True) if is_wrong(request, given[i], alone[i])
        )
        done += len(requests)
    return wrong


def by_callers(pipe: Any, given: list[File], alone: list[Any], count: int, random: Any) -> Counter[str]:
    """Return the number of wrong results of concurrent callers, by kind of file."""
    wrong: Counter[str] = Counter()
    chosen = iter(random.choice(len(given), size=count, p=likelihood(given)))
    lock = threading.Lock()  # guards wrong and chosen

    def call() -> None:
        while True:
            with lock:
                index = next(chosen, None)
            if index is None:
                return
            request: dict[str, Any] = {"data": given[index].data}
            with contextlib.suppress(hami.Error):
                pipe(request)
            if is_wrong(request, given[index], alone[index]):
                with lock:
                    wrong[given[index].kind] += 1

    threads = [threading.Thread(target=call) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def main() -> None:
    given = files()
    alone = decode_alone(given)
    log(f"{len(given)} files, of which {sum(each is None for each in alone)} cannot be decoded")
    random = np.random.default_rng(3)
    share = -(-REQUESTS // len(CONFIGS))
    for way, run in (("lists of 8 to 140", in_lists), (f"{CALLERS} callers", by_callers)):
        found = {}
        for name, config in CONFIGS.items():
            with hami.pipe(config) as pipe:
                found[name] = run(pipe, given, alone, share, random)
            log(f"{way}, {name}: {dict(found[name])}")
        metric = f"Wrong results of {share * len(CONFIGS)} mixed requests: {way}"
        total = sum(each.total() for each in found.values())
        kinds = {name: dict(each) or "none" for name, each in found.items()}
        result(metric, total, at_most=0, files=len(given), wrong=kinds)


if __name__ == "__main__":
    main()

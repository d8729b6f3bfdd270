"""DecodeTensor on a GPU: a batch of JPEG files with files that nvJPEG cannot decode, which go to DecodeMat."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

import hami
import pytest
from test_gpu_backends import jpeg, needs_nvjpeg, run

np = pytest.importorskip("numpy", reason="numpy is not installed")
pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
ops = pytest.importorskip("PIL.ImageOps")

if not (find_spec("hami_image") and find_spec("cv2")):
    # This process then has a DecodeMat of its own, with the parameters of that of hami-image.
    @hami.register
    class DecodeMat(hami.Backend):
        max = 1
        thread = "concurrent"
        color: str = "bgr"
        max_pixels: int = 100_000_000
        exif: bool = True

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                picture = pillow.open(io.BytesIO(item["data"]))
                if picture.width * picture.height > self.max_pixels:
                    raise hami.RequestError(f"more than max_pixels = {self.max_pixels:,}")
                upright = ops.exif_transpose(picture) if self.exif else picture
                rgb = np.asarray(upright.convert("RGB"))
                item["color"] = self.color
                item["result"] = np.ascontiguousarray(rgb[..., ::-1] if self.color == "bgr" else rgb)


def planes(request: dict[str, Any]) -> Any:
    return hami.to_numpy(request["result"])[0]


def difference(request: dict[str, Any], expected: Any) -> float:
    assert planes(request).shape == expected.shape
    return float(np.abs(planes(request).astype(int) - expected).mean())


@pytest.mark.parametrize("color", ["rgb", "bgr"])
def test_a_mixed_batch_is_right_in_every_row(color):
    needs_nvjpeg()
    exact = {
        "PNG": jpeg(640, 480, "PNG"),
        "PNG with a palette": jpeg(33, 21, "PNG", mode="P"),
        "gray PNG": jpeg(50, 70, "PNG", mode="L"),
        "WebP": jpeg(301, 199, "WEBP", lossless=True),
        "BMP": jpeg(64, 48, "BMP"),
    }
    close = {
        "JPEG": jpeg(640, 480),
        "progressive 4:2:2": jpeg(301, 203, progressive=True, subsampling=1),
        "progressive 4:4:4": jpeg(65, 33, progressive=True, subsampling=0),
        "CMYK": jpeg(120, 80, mode="CMYK", quality=95),
        "gray": jpeg(64, 64, mode="L"),
    }
    files = [file for pair in zip(close.values(), exact.values(), strict=True) for file in pair] * 2
    for _ in range(3):
        requests = run(f"S[DecodeTensor(color={color}),hami-cuda::CpuTensor]", *(file for file, _ in files))
        for index, (request, (_, expected)) in enumerate(zip(requests, files, strict=True)):
            given = expected[::-1] if color == "bgr" else expected
            assert difference(request, given) <= (0 if index % 2 else 3)


def test_orientation_holds_for_all_files():
    needs_nvjpeg()
    exif = pillow.Exif()
    exif[0x0112] = 6  # the orientation
    files = [jpeg(64, 48, exif=exif), jpeg(64, 48, "PNG", exif=exif), jpeg(120, 80, mode="CMYK", quality=95, exif=exif)]
    for exif_is_applied in (True, False):
        backend = f"S[DecodeTensor(exif={exif_is_applied}),hami-cuda::CpuTensor]"
        for request, (_, stored) in zip(run(backend, *(file for file, _ in files)), files, strict=True):
            upright = stored.transpose(0, 2, 1)[..., ::-1]  # of orientation 6
            assert difference(request, upright if exif_is_applied else stored) <= 3


def test_max_pixels_holds_for_all_files():
    needs_nvjpeg()
    files = [jpeg(10, 10), jpeg(20, 20), jpeg(10, 10, "PNG"), jpeg(20, 20, "PNG")]
    requests = [{"data": file} for file, _ in files]
    config = {"backend": "S[DecodeTensor(max_pixels=100),SyncTensor]", "max": 4, "batching": "greedy"}
    with hami.pipe(config) as pipe, pytest.raises(hami.BatchError) as raised:
        pipe(requests)
    assert [index for index, _ in raised.value.errors] == [1, 3]
    assert all("max_pixels" in str(error) for _, error in raised.value.errors)
    assert [requests[index]["result"].shape for index in (0, 2)] == [(1, 3, 10, 10)] * 2


def test_other_files_from_threads_do_not_change_the_results_of_jpeg_files():
    needs_nvjpeg()
    files = [jpeg(320 + 8 * i, 240, *(["PNG"] if i % 4 == 3 else [])) for i in range(16)]
    config = {"backend": "S[DecodeTensor,hami-cuda::CpuTensor]", "max": 16, "instance_num": 3}
    with hami.pipe(config) as pipe, ThreadPoolExecutor(32) as threads:

        def ask(number: int) -> float:
            file, expected = files[number % len(files)]
            request = {"data": file}
            pipe(request)
            return difference(request, expected)

        assert max(threads.map(ask, range(640))) < 3

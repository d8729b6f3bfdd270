"""EncodeJpeg on a GPU, compared with Pillow, and the way from a JPEG file to boxes of its picture on the device."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hami
import pytest
from test_gpu_backends import free_memory, jpeg, needs_nvjpeg, run

np = pytest.importorskip("numpy", reason="numpy is not installed")
torch = pytest.importorskip("torch", reason="torch, the reference of these tests, is not installed")
pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
files = pytest.importorskip("PIL.JpegImagePlugin")

SUBSAMPLINGS = {"4:4:4": 0, "4:2:2": 1, "4:2:0": 2}  # as Pillow names them
PARTS = [[0.1, 0.3, 0.6, 0.7], [0.11, 0.31, 0.6, 0.7], [0.5, 0.0, 1.0, 1.0]]  # of an image, as boxes
SIZES = [(640, 480), (33, 21), (1, 1), (7, 300), (1920, 1080), (16, 16)]


@pytest.fixture(autouse=True)
def _nvjpeg():
    needs_nvjpeg()


def picture(width: int, height: int, channels: int = 3) -> Any:
    """A picture with smooth colors and some noise, C x H x W."""
    row, column = np.mgrid[:height, :width]
    planes = [row * 200 // height, column * 200 // width, (row + column) % 256 // 2]
    noise = np.random.default_rng(width).integers(0, 30, (channels, height, width))
    return (np.stack(planes[:channels]) + noise).astype(np.uint8)


def encode(*data: Any, parameters: str = "quality=95", **keys: Any) -> list[bytes]:
    return [request["result"] for request in run(f"S[GpuTensor,EncodeJpeg({parameters})]", *data, **keys)]


def decoded(file: bytes) -> Any:
    """Return the picture of a file, C x H x W."""
    pixels = np.asarray(pillow.open(io.BytesIO(file)))
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def by_pillow(planes: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    pillow.fromarray(planes[0] if len(planes) == 1 else planes.transpose(1, 2, 0)).save(file, "JPEG", **options)
    return file.getvalue()


def loss(file: bytes, planes: Any) -> float:
    found = decoded(file)
    assert found.shape == planes.shape
    return float(np.abs(found.astype(int) - planes).mean())


@pytest.mark.parametrize("subsampling", SUBSAMPLINGS)
@pytest.mark.parametrize("quality", [50, 75, 95, 100])
def test_files_are_as_exact_as_those_of_libjpeg(quality, subsampling):
    pictures = [picture(*size) for size in SIZES]
    found = encode(*pictures, parameters=f"quality={quality},subsampling='{subsampling}'")
    for planes, file in zip(pictures, found, strict=True):
        reference = by_pillow(planes, quality=quality, subsampling=SUBSAMPLINGS[subsampling])
        image = pillow.open(io.BytesIO(file))
        assert files.get_sampling(image) == SUBSAMPLINGS[subsampling]
        assert image.quantization == pillow.open(io.BytesIO(reference)).quantization
        assert loss(file, planes) <= 1.1 * loss(reference, planes) + 0.5


def test_the_colors_of_half_as_many_rows_are_kept_as_4_4_0():
    """Pillow writes no such files; those of 4:2:0 keep fewer colors."""
    pictures = [picture(*size) for size in SIZES]
    for planes, file in zip(pictures, encode(*pictures, parameters="subsampling='4:4:0'"), strict=True):
        assert [layer[1:3] for layer in pillow.open(io.BytesIO(file)).layer] == [(1, 2), (1, 1), (1, 1)]
        assert loss(file, planes) <= 1.1 * loss(by_pillow(planes, quality=95, subsampling=2), planes) + 0.5


def test_gray_images_become_gray_files():
    pictures = [picture(*size, channels=1) for size in SIZES]
    for planes, file in zip(pictures, encode(*pictures), strict=True):
        assert pillow.open(io.BytesIO(file)).mode == "L"
        assert loss(file, planes) <= 1.1 * loss(by_pillow(planes, quality=95), planes) + 0.5


def test_formats_and_layouts_give_the_same_file():
    planes = picture(65, 33)
    (expected,) = encode(planes)
    bgr = np.ascontiguousarray(planes[::-1])
    hwc = np.ascontiguousarray(planes.transpose(1, 2, 0))
    assert encode(bgr, color="bgr") == encode(bgr, parameters="source=bgr") == [expected]
    assert encode(hwc, data_format="hwc") == [expected]
    device = torch.from_numpy(planes).cuda()
    strided = torch.stack([device, device], -1)[..., 0]
    assert not strided.is_contiguous()
    assert encode(strided) == [expected]
    assert encode(np.ascontiguousarray(hwc[..., ::-1]), data_format="hwc", color="bgr") == [expected]


def test_a_batch_from_threads_gives_the_files_that_single_requests_give():
    pictures = [picture(100 + 8 * number, 90 - number, 1 if number % 4 == 3 else 3) for number in range(40)]
    alone = [encode(planes)[0] for planes in pictures]
    assert encode(*pictures) == alone
    config = {"backend": "S[GpuTensor,EncodeJpeg]", "max": 24, "instance_num": 3}
    with hami.pipe(config) as pipe, ThreadPoolExecutor(24) as threads:

        def wrong(number: int) -> bool:
            index = number % len(pictures)
            return bool(pipe({"data": pictures[index]})["result"] != alone[index])

        assert sum(threads.map(wrong, range(1200))) == 0


def test_a_picture_is_decoded_resized_and_encoded_on_the_device():
    sources = [jpeg(640, 480), jpeg(500, 375), jpeg(300, 200)]
    chain = "DecodeTensor,ResizeTensor(width=320,height=240)"
    pixels = run(f"S[{chain},hami-cuda::CpuTensor]", *(file for file, _ in sources))
    found = run(f"S[{chain},EncodeJpeg(subsampling='4:4:4')]", *(file for file, _ in sources))
    for request, other in zip(found, pixels, strict=True):
        planes = hami.to_numpy(other["result"])[0]
        reference = by_pillow(planes, quality=95, subsampling=0)
        assert loss(request["result"], planes) <= 1.1 * loss(reference, planes) + 0.5


def test_encoders_are_kept_and_do_not_grow():
    pictures = [picture(*size) for size in SIZES]
    for _ in range(5):
        encode(*pictures)
    before = free_memory()
    for _ in range(50):
        encode(*pictures)
    assert before - free_memory() <= 16 << 20


def test_boxes_of_a_jpeg_file_stay_on_the_device():
    @hami.register("FindOnDevice")
    class Find(hami.Backend):
        """Takes images on the device, and returns boxes of fixed parts of each, on the device too."""

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                image = torch.from_dlpack(item["data"])
                size = torch.tensor([image.shape[-1], image.shape[-2]] * 2, device=image.device)
                boxes = torch.tensor(PARTS, device=image.device) * size
                item["result"] = {"boxes": boxes, "scores": torch.tensor([0.8, 0.9, 0.7], device=image.device)}

    chain = "DecodeTensor,LetterBoxTensor(width=640,height=640),FindOnDevice,NmsTensor,RestoreBoxes,SyncTensor"
    sizes = [(640, 480), (300, 900), (1920, 1080)]
    requests = run(f"S[{chain}]", *(jpeg(*size)[0] for size in sizes))
    for (width, height), request in zip(sizes, requests, strict=True):
        result = request["result"]
        assert {result[key].device for key in result} == {"cuda:0"}
        scale = min(640 / width, 640 / height)
        left, top = (640 - round(width * scale)) // 2, (640 - round(height * scale)) // 2
        kept = np.array(PARTS)[[1, 2]] * 640  # the first overlaps the second
        expected = np.clip((kept - [left, top] * 2) / scale, 0, [width, height] * 2)
        np.testing.assert_allclose(torch.from_dlpack(result["boxes"]).cpu(), expected, rtol=1e-5, atol=1e-2)
        assert torch.from_dlpack(result["indices"]).tolist() == [1, 2]

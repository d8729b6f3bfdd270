"""DecodeTensor with hami-image installed: files that nvJPEG cannot decode, in a batch with files that it can."""

from __future__ import annotations

import logging
import zlib
from typing import Any

import hami
import pytest
from native import GATHERED
from test_decode_tensor import UPRIGHT, decode, jpeg, needs_no_nvjpeg, nvjpeg, pixels

np = pytest.importorskip("numpy", reason="numpy is not installed")
cv2 = pytest.importorskip("cv2", reason="hami-image needs OpenCV, which is not installed")
pytest.importorskip("hami_image", reason="hami-image is not installed")
pytestmark = pytest.mark.usefixtures("fake")
__all__ = ["nvjpeg"]  # a fixture

FLAGS = {"rgb": cv2.IMREAD_COLOR_RGB, "bgr": cv2.IMREAD_COLOR_BGR, "gray": cv2.IMREAD_GRAYSCALE}


def picture(width: int, height: int, channels: int = 3) -> Any:
    return np.random.default_rng(width).integers(0, 256, (height, width, channels), np.uint8)


def encoded(image: Any, extension: str = ".png", *flags: int) -> bytes:
    return bytes(cv2.imencode(extension, image, flags)[1])


def with_orientation(png: bytes, orientation: int) -> bytes:
    """Return a PNG file with an EXIF orientation."""
    exif = b"eXIfMM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0" + bytes([orientation, 0, 0, 0, 0, 0, 0])
    chunk = (len(exif) - 4).to_bytes(4, "big") + exif + zlib.crc32(exif).to_bytes(4, "big")
    return png[:33] + chunk + png[33:]  # after the header


OTHERS = {
    "PNG": encoded(picture(40, 30)),
    "PNG with alpha": encoded(picture(13, 30, 4)),
    "PNG of 16 bits": encoded(picture(7, 9).astype(np.uint16) * 257),
    "gray PNG": encoded(picture(33, 5, 1)),
    "WebP": encoded(picture(21, 17), ".webp", cv2.IMWRITE_WEBP_QUALITY, 101),
    "BMP": encoded(picture(5, 6), ".bmp"),
    "TIFF": encoded(picture(50, 60), ".tiff"),
}


@pytest.mark.parametrize("layout", ["nchw", "hwc"])
@pytest.mark.parametrize("color", ["rgb", "bgr", "gray"])
def test_a_mixed_batch_is_right_in_every_row(nvjpeg, fake, color, layout):
    before = fake.fake_launches()
    files = [jpeg(3, 2), *OTHERS.values(), jpeg(8, 5, kind="s"), jpeg(3, 2)]
    requests = decode(nvjpeg, *files, color=color, layout=layout)
    assert fake.fake_launches() == before + 1 + GATHERED
    for index, size in {0: (3, 2), len(files) - 2: (8, 5), len(files) - 1: (3, 2)}.items():
        expected = {"rgb": pixels(*size), "bgr": pixels(*size)[::-1], "gray": pixels(*size)[:1]}[color]
        check(requests[index], expected.transpose(1, 2, 0), color, layout)
    for request, file in zip(requests[1:-2], OTHERS.values(), strict=True):
        expected = cv2.imdecode(np.frombuffer(file, np.uint8), FLAGS[color])
        check(request, expected if color != "gray" else expected[..., None], color, layout)


def test_files_that_the_cpu_decodes_are_counted_with_their_time(nvjpeg):
    given = f"DecodeTensor(library='{nvjpeg._name}')"
    with hami.pipe({"backend": f"S[{given},hami-cuda::CpuTensor]", "max": 3, "batching": "greedy"}) as pipe:
        pipe([{"data": jpeg(3, 2)}])
        assert pipe.stats()["default"].counters == {}
        pipe([{"data": file} for file in (jpeg(3, 2), OTHERS["PNG"], OTHERS["WebP"])])
        counters = pipe.stats()["default"].counters
    assert counters["other_files"] == 2
    assert counters["other_files_us"] > 0


def check(request: dict[str, Any], expected: Any, color: str, layout: str) -> None:
    assert (request["color"], request["data_format"]) == (color, layout)
    np.testing.assert_array_equal(
        request["result"], expected if layout == "hwc" else expected.transpose(2, 0, 1)[None], strict=True
    )


@pytest.mark.parametrize("orientation", UPRIGHT)
def test_other_files_are_turned_upright_too(nvjpeg, orientation):
    file = with_orientation(encoded(picture(9, 4)), orientation)
    stored = picture(9, 4)[..., ::-1].transpose(2, 0, 1)
    first, second = decode(nvjpeg, file, jpeg(5, 3, orientation))
    np.testing.assert_array_equal(first["result"][0], UPRIGHT[orientation](stored))
    np.testing.assert_array_equal(second["result"][0], UPRIGHT[orientation](pixels(5, 3)))
    (request,) = decode(nvjpeg, file, exif="false")
    np.testing.assert_array_equal(request["result"][0], stored)


def test_max_pixels_holds_for_other_files_too(nvjpeg):
    requests = [{"data": file} for file in (jpeg(10, 10), jpeg(20, 20), encoded(picture(10, 10)), OTHERS["PNG"])]
    backend = f"S[DecodeTensor(library='{nvjpeg._name}',max_pixels=100),hami-cuda::CpuTensor]"
    with (
        hami.pipe({"backend": backend, "max": 4, "batching": "greedy"}) as pipe,
        pytest.raises(hami.BatchError) as raised,
    ):
        pipe(requests)
    (jpeg_index, jpeg_error), (png_index, png_error) = raised.value.errors
    assert (jpeg_index, png_index) == (1, 3)
    assert 'the image has 20 x 20 pixels, more than "max_pixels" = 100' in str(jpeg_error)
    assert "the PNG image is 40 x 30 = 1,200 pixels, more than max_pixels = 100" in str(png_error)
    assert [hami.to_numpy(requests[index]["result"]).shape for index in (0, 2)] == [(1, 3, 10, 10)] * 2


def test_a_file_that_no_one_can_decode_fails_alone(nvjpeg):
    requests = [{"data": file} for file in (jpeg(3, 2), jpeg(3, 2, kind="x"), OTHERS["PNG"][:-30], OTHERS["WebP"])]
    backend = f"S[DecodeTensor(library='{nvjpeg._name}'),hami-cuda::CpuTensor]"
    with (
        hami.pipe({"backend": backend, "max": 4, "batching": "greedy"}) as pipe,
        pytest.raises(hami.BatchError) as raised,
    ):
        pipe(requests)
    assert [index for index, _ in raised.value.errors] == [1, 2]
    assert all(str(error).startswith("DecodeMat: ") for _, error in raised.value.errors)
    assert all("result" in requests[index] for index in (0, 3))


def test_the_batches_of_a_node_are_not_limited_by_the_decoder_of_other_files(nvjpeg):
    before = nvjpeg.fake_batches()
    decode(nvjpeg, *(jpeg(3, 2) for _ in range(40)))
    assert nvjpeg.fake_batches() == before + 1


def test_without_nvjpeg_all_files_are_decoded_on_the_cpu_and_a_warning_says_so(caplog):
    needs_no_nvjpeg()
    with caplog.at_level(logging.WARNING), hami.pipe("S[DecodeTensor,hami-cuda::CpuTensor]") as pipe:
        result = hami.to_numpy(pipe({"data": OTHERS["PNG"]})["result"])
    np.testing.assert_array_equal(result[0], picture(40, 30)[..., ::-1].transpose(2, 0, 1))
    expected = "nvJPEG is not installed, so DecodeMat decodes all files on the CPU; pip install hami-cuda[nvjpeg]"
    assert [expected in message for message in caplog.messages] == [True]

"""EncodeJpeg with a fake nvJPEG on the fake driver: layouts, colors, batches, and bad input."""

from __future__ import annotations

import ctypes
import shutil
from typing import Any

import hami
import pytest
from test_decode_tensor import jpeg, nvjpeg, pixels

np = pytest.importorskip("numpy", reason="numpy is not installed")
pytestmark = pytest.mark.usefixtures("fake")
__all__ = ["nvjpeg"]  # a fixture

SUBSAMPLINGS = {"4:4:4": 0, "4:2:2": 1, "4:2:0": 2, "4:4:0": 3}
GRAY = 6


def encode(nvjpeg: Any, *requests: dict[str, Any], **parameters: Any) -> list[bytes]:
    """Return the files of requests that run as one batch."""
    given = ",".join(f"{key}='{value}'" for key, value in {"library": nvjpeg._name, **parameters}.items())
    config = {"backend": f"S[GpuTensor,EncodeJpeg({given})]", "max": len(requests), "batching": "greedy"}
    with hami.pipe(config) as pipe:
        pipe(list(requests))
    return [request["result"] for request in requests]


def file_of(picture: Any, quality: int = 95, subsampling: int = 2) -> bytes:
    """Return the file of the fake nvJPEG for planes in the order RGB."""
    channels, height, width = picture.shape
    numbers = [width, height, channels, quality, subsampling if channels == 3 else GRAY]
    return b"\xff\xd8" + bytes(numbers) + picture.tobytes()


def picture(width: int, height: int, channels: int = 3) -> Any:
    return np.random.default_rng(width).integers(0, 256, (channels, height, width), np.uint8)


def test_the_pictures_of_a_batch_become_files(nvjpeg):
    pictures = [picture(5 + number % 7, 3 + number % 5, 1 if number % 3 == 2 else 3) for number in range(40)]
    files = encode(nvjpeg, *({"data": each[None] if i % 2 else each} for i, each in enumerate(pictures)))
    assert files == [file_of(each) for each in pictures]


def test_late_work_does_not_mix_the_files(nvjpeg, fake, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_LATE", "1")
    pictures = [picture(5 + number, 3) for number in range(8)] * 5
    assert encode(nvjpeg, *({"data": each} for each in pictures)) == [file_of(each) for each in pictures]
    fake.cuCtxSynchronize()


def test_a_batch_that_fails_midway_leaves_no_encoder_at_work(nvjpeg, fake, monkeypatch, tmp_path):
    library = shutil.copy(nvjpeg._name, tmp_path)  # of another path, so that the instance has the only encoder
    hami.native.allow_library(library)
    monkeypatch.setenv("FAKE_CUDA_LATE", "1")
    config = {"backend": f"EncodeJpeg(library='{library}')", "max": 2, "instance_num": 1, "batching": "greedy"}
    with hami.pipe("GpuTensor") as there, hami.pipe(config) as pipe:
        first, large, last = ({"data": there({"data": picture(width, 3)})["result"]} for width in (5, 17, 6))
        with pytest.raises(hami.BatchError, match="EncodeJpeg: nvJPEG has no memory on the device"):
            pipe([first, large])
        assert pipe(last)["result"] == file_of(picture(6, 3))
    fake.cuCtxSynchronize()


@pytest.mark.parametrize(("backend", "needs"), [("DecodeTensor", 4), ("EncodeJpeg", 3)])
def test_a_coder_that_cannot_be_made_leaves_nothing_behind(nvjpeg, monkeypatch, tmp_path, backend, needs):
    library = shutil.copy(nvjpeg._name, tmp_path)
    hami.native.allow_library(library)
    for objects in range(needs):
        monkeypatch.setenv("FAKE_NVJPEG_OBJECTS", str(objects))
        with pytest.raises(MemoryError, match="does not start: status 5"):
            hami.pipe(f"{backend}(library='{library}')")
        assert ctypes.CDLL(library).fake_objects() == 0
    monkeypatch.setenv("FAKE_NVJPEG_OBJECTS", str(needs))
    hami.pipe({"backend": f"{backend}(library='{library}')", "instance_num": 1}).close()


@pytest.mark.parametrize(("refused", "what"), [(SUBSAMPLINGS["4:4:0"], "subsampling"), (70, "quality")])
def test_settings_that_nvjpeg_refuses_are_errors_instead_of_those_of_another_node(nvjpeg, monkeypatch, refused, what):
    encode(nvjpeg, {"data": picture(6, 4)}, quality=90)
    monkeypatch.setenv("FAKE_NVJPEG_REFUSED", str(refused))
    with pytest.raises(hami.Error, match=rf"EncodeJpeg: nvJPEG \(.*\) refuses the {what}: status 2"):
        encode(nvjpeg, {"data": picture(6, 4)}, quality=70, subsampling="4:4:0")


@pytest.mark.parametrize("subsampling", SUBSAMPLINGS)
def test_quality_and_subsampling_are_those_of_the_parameters(nvjpeg, subsampling):
    (file,) = encode(nvjpeg, {"data": picture(6, 4)}, quality=70, subsampling=subsampling)
    assert file == file_of(picture(6, 4), 70, SUBSAMPLINGS[subsampling])


def test_the_format_is_the_key_or_the_source(nvjpeg):
    rgb = picture(6, 4)
    bgr = np.ascontiguousarray(rgb[::-1])
    requests = [{"data": bgr, "color": "bgr"}, {"data": rgb, "color": "rgb"}, {"data": rgb}]
    assert encode(nvjpeg, *requests) == [file_of(rgb)] * 3
    assert encode(nvjpeg, {"data": bgr}, source="bgr") == [file_of(rgb)]


def test_interleaved_pixels_and_views_are_read_as_they_are(nvjpeg, fake):
    rgb = picture(6, 4)
    hwc = np.ascontiguousarray(rgb.transpose(1, 2, 0))
    before = fake.fake_launches()
    assert encode(nvjpeg, {"data": hwc, "data_format": "hwc"}, {"data": rgb}) == [file_of(rgb)] * 2
    assert fake.fake_launches() == before
    library = f"library='{nvjpeg._name}'"
    config = f"S[DecodeTensor({library},layout=hwc),CropTensor(box='1,1,4,3'),EncodeJpeg({library})]"
    request = {"data": jpeg(6, 4)}
    with hami.pipe(config) as pipe:
        assert pipe(request)["result"] == file_of(np.ascontiguousarray(pixels(6, 4)[:, 1:3, 1:4]))
    assert fake.fake_launches() == before


def test_other_strides_are_copied_with_one_launch(nvjpeg, fake):
    """Without the key, the image 3 x 6 x 3 of planes, a view, is read as three channels of 6 x 3 pixels."""
    library = f"library='{nvjpeg._name}'"
    config = f"S[DecodeTensor({library},layout=hwc),Remove(data_format),EncodeJpeg({library})]"
    requests = [{"data": jpeg(6, 3)} for _ in range(3)]
    before = fake.fake_launches()
    with hami.pipe({"backend": config, "max": 3, "batching": "greedy"}) as pipe:
        pipe(requests)
    expected = file_of(np.ascontiguousarray(pixels(6, 3).transpose(1, 2, 0)))
    assert [request["result"] for request in requests] == [expected] * 3
    assert fake.fake_launches() == before + 1


def test_an_image_that_nvjpeg_refuses_fails_alone(nvjpeg):
    requests = [{"data": picture(width, 3)} for width in (12, 13, 14)]
    with pytest.raises(hami.BatchError) as raised:
        encode(nvjpeg, *requests)
    ((index, error),) = raised.value.errors
    assert (index, str(error).splitlines()[0]) == (
        1,
        "EncodeJpeg: nvJPEG cannot encode the image of shape [3, 3, 13]",
    )
    assert [request.get("result") for request in requests[::2]] == [file_of(picture(width, 3)) for width in (12, 14)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros((2, 3, 4, 4), np.uint8), "EncodeJpeg takes one image of uint8 with 1 or 3 channels, got uint8"),
        (np.zeros((4, 4, 4), np.uint8), "EncodeJpeg takes one image of uint8 with 1 or 3 channels, got uint8"),
        (np.zeros((3, 4, 4), np.float32), "EncodeJpeg takes one image of uint8 with 1 or 3 channels, got float32"),
        (np.zeros((1, 1, 70000), np.uint8), "a JPEG file has at most 65535 x 65535 pixels"),
    ],
)
def test_what_is_not_a_picture_is_an_error_of_the_request(nvjpeg, data, message):
    with pytest.raises(hami.Error) as raised:
        encode(nvjpeg, {"data": data})
    assert message in str(raised.value)


def test_unknown_parameters_are_errors_of_the_build(nvjpeg):
    for given in ("quality=0", "quality=101", "subsampling='4:1:1'"):
        with pytest.raises(hami.ConfigError):
            hami.pipe(f"EncodeJpeg(library='{nvjpeg._name}',{given})")

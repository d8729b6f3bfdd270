"""AVIF and JPEG 2000 files: their pixels, what a viewer shows of them, and files that bypass the limits."""

from __future__ import annotations

import io
import struct
import tracemalloc

import cv2
import hami
import numpy as np
import pytest
from PIL import Image, ImageOps

from hami_image import _av1_stream
from hami_image._box_file import read_avif

FORMATS = {"AVIF": {"quality": 95, "speed": 9, "subsampling": "4:4:4"}, "JPEG2000": {}}  # the latter without loss


def picture(height: int, width: int, channels: int = 3) -> np.ndarray:
    small = np.random.default_rng(5).integers(0, 256, (4, 6, channels), np.uint8)
    return cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR)


def encoded(name: str, image: np.ndarray) -> bytes:
    """Write a picture in the order of OpenCV with Pillow, another encoder than that of the decoder."""
    file = io.BytesIO()
    order = [2, 1, 0, 3][: image.shape[2]]
    Image.fromarray(np.ascontiguousarray(image[:, :, order])).save(file, name, **FORMATS[name])
    return file.getvalue()


def refused(run, data: bytes, **params) -> str:
    with pytest.raises(hami.RequestError) as error:
        run("DecodeMat", params, data=data)
    return str(error.value)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("size", [(64, 96), (33, 17), (1, 1), (301, 200)])
def test_a_file_is_decoded_in_each_order_of_colours(run, name, size):
    image = picture(*size)
    data = encoded(name, image)
    result = run("DecodeMat", data=data)["result"]
    assert np.abs(result.astype(int) - image).mean() <= (4 if name == "AVIF" else 0)
    assert np.array_equal(run("DecodeMat", {"color": "rgb"}, data=data)["result"], result[:, :, ::-1])
    assert run("DecodeMat", {"color": "gray"}, data=data)["result"].shape == size


def test_a_codestream_without_boxes_is_decoded(run):
    data = encoded("JPEG2000", picture(20, 30))
    stream = data[data.index(b"jp2c") + 4 :]
    assert np.array_equal(run("DecodeMat", data=stream)["result"], picture(20, 30))


def test_the_alpha_channel_of_an_avif_file_is_kept_where_it_is_asked_for(run):
    data = encoded("AVIF", picture(40, 50, 4))
    assert run("DecodeMat", {"alpha": True}, data=data)["result"].shape == (40, 50, 4)
    assert run("DecodeMat", data=data)["result"].shape == (40, 50, 3)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_as_its_file_requires(run, orientation):
    exif = Image.Exif()
    exif[0x112] = orientation  # Pillow writes it as the properties irot and imir
    file = io.BytesIO()
    Image.fromarray(picture(40, 50)).save(file, "AVIF", quality=95, exif=exif)
    stored = run("DecodeMat", {"color": "rgb", "exif": False}, data=file.getvalue())["result"]
    assert np.abs(stored.astype(int) - picture(40, 50)).mean() <= 6
    shown = run("DecodeMat", {"color": "rgb"}, data=file.getvalue())["result"]
    assert np.array_equal(shown, turned(stored, orientation))


def turned(image: np.ndarray, orientation: int) -> np.ndarray:
    """Apply an EXIF orientation with Pillow."""
    as_png = io.BytesIO()
    exif = Image.Exif()
    exif[0x112] = orientation
    Image.fromarray(image).save(as_png, "PNG", exif=exif)
    return np.asarray(ImageOps.exif_transpose(Image.open(as_png)))


def test_a_cropped_picture_is_refused(run):
    data = encoded("AVIF", picture(40, 50)).replace(b"pixi", b"clap")
    assert "has a clean aperture (clap)" in refused(run, data)


def test_a_sequence_of_images_is_refused(run):
    data = bytearray(encoded("AVIF", picture(40, 50)))
    data[8:12] = b"avis"
    assert refused(run, bytes(data)).startswith("DecodeMat: the AVIF file is a sequence of images")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("part", [0.02, 0.1, 0.3, 0.6, 0.9, -1])
def test_a_file_that_ends_early_is_an_error(run, name, part):
    data = encoded(name, picture(64, 96))
    cut = data[:-1] if part == -1 else data[: int(len(data) * part)]
    assert "DecodeMat" in refused(run, cut)


def test_an_avif_file_whose_boxes_hide_a_large_picture_is_refused_before_decoding(run):
    data = bytearray(encoded("AVIF", picture(300, 400)))
    at = data.index(b"ispe") + 8
    data[at : at + 8] = struct.pack(">II", 5, 5)
    assert "the AVIF image is 400 x 300 = 120,000 pixels, more than max_pixels = 1,000" in refused(
        run, bytes(data), max_pixels=1000
    )


def test_a_jpeg_2000_file_whose_boxes_hide_a_large_picture_is_refused_before_decoding(run):
    data = bytearray(encoded("JPEG2000", picture(300, 400)))
    at = data.index(b"ihdr") + 4
    data[at : at + 8] = struct.pack(">II", 5, 5)
    assert "the JPEG 2000 image is 400 x 300" in refused(run, bytes(data), max_pixels=1000)


def box(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I4s", 8 + len(content), kind) + content


def avif_of_items(extents: list[int], stream: bytes, *, placed: bool = False) -> bytes:
    """An AVIF file whose items have so many parts: the stream if it is `placed`, else the whole file."""
    head = box(b"ftyp", b"avif\0\0\0\0avif")
    entries = [b"\2\0\0\0" + struct.pack(">HH4s", i, 0, b"av01") + b"\0" for i in range(1, len(extents) + 1)]
    infos = b"".join(box(b"infe", entry) for entry in entries)
    place = struct.pack(">II", len(head) + 8, len(stream)) if placed else b""
    places = b"".join(struct.pack(">HHH", i, 0, count) + place * count for i, count in enumerate(extents, 1))
    meta = (
        box(b"pitm", struct.pack(">IH", 0, 1))
        + box(b"iinf", struct.pack(">IH", 0, len(extents)) + infos)
        + box(b"iloc", struct.pack(">IHH", 0, 0x4400 if placed else 0, len(extents)) + places)
    )
    return head + box(b"mdat", stream) + box(b"meta", b"\0" * 4 + meta)


@pytest.mark.parametrize("extents", [[3000], [3] * 200, [65535], [65535] * 50, [1] * 300])
def test_parts_of_items_that_repeat_the_file_take_no_memory(run, extents):
    data = avif_of_items(extents, bytes(4_000_000))
    tracemalloc.start()
    try:
        assert "contain no unambiguous image size" in refused(run, data)
        assert tracemalloc.get_traced_memory()[1] < 4 * len(data)
    finally:
        tracemalloc.stop()


def test_items_may_share_their_bytes():
    bits = "000110000001010101101111100111" + "0" * 40  # a still picture of 48 x 40, and its tools
    stream = b"\x0a\x08" + int(bits[:64], 2).to_bytes(8, "big")
    assert read_avif(memoryview(avif_of_items([1] * 64, stream, placed=True))).size == (48, 40)


def test_a_long_number_in_a_sequence_header_ends_the_file():
    size = (1 << 21) - 1
    times = b"\x04" + bytes(7) + b"\x02"  # a profile, and times at equal distance: a number of variable length follows
    header = b"\x0a" + b"\xff\xff\x7f"  # with a size of 3 bytes
    with pytest.raises(IndexError, match="a number is too long"):
        list(_av1_stream.sequences(memoryview(header + times.ljust(size, b"\0"))))


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_are_errors_or_pictures(run, name):
    data = encoded(name, picture(64, 96))
    random = np.random.default_rng(11)
    for _ in range(150):
        damaged = bytearray(data)
        for place in random.integers(0, min(len(data), 400), 3):
            damaged[place] = random.integers(0, 256)
        try:
            result = run("DecodeMat", {"max_pixels": 100_000}, data=bytes(damaged))["result"]
        except hami.RequestError:
            continue
        assert result.shape[0] * result.shape[1] <= 100_000

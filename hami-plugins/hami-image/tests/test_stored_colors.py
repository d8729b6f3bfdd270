"""Files whose colours OpenCV decodes otherwise than they say. The expected colours are those that were written."""

from __future__ import annotations

import io
import struct

import cv2
import hami
import numpy as np
import pytest
from PIL import Image, ImageCms

UPPER = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)]
LOWER = [(200, 30, 60), (20, 180, 70), (40, 60, 210), (0, 0, 0)]
PICTURE = np.repeat(np.repeat(np.array([UPPER, LOWER], np.uint8), 20, 0), 17, 1)  # 40 x 68
ORDERS = ["rgb", "bgr", "gray"]


def in_order(picture: np.ndarray, color: str) -> np.ndarray:
    if color == "rgb":
        return picture
    return cv2.cvtColor(picture, cv2.COLOR_RGB2BGR if color == "bgr" else cv2.COLOR_RGB2GRAY)


def saved(picture: Image.Image, kind: str, **options) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def distance(result: np.ndarray, expected: np.ndarray) -> int:
    assert result.shape == expected.shape
    return int(np.abs(result.astype(int) - expected).max())


def error_of(run, data: bytes) -> str:
    with pytest.raises(hami.RequestError) as error:
        run("DecodeMat", data=data)
    return str(error.value)


@pytest.mark.parametrize("color", ORDERS)
def test_a_jpeg_2000_file_in_ycbcr_has_the_colours_that_were_written(run, color):
    data = saved(Image.fromarray(PICTURE).convert("YCbCr"), "JPEG2000")
    assert data[data.index(b"colr") + 7 :][:4] == struct.pack(">I", 18)  # sYCC
    assert distance(run("DecodeMat", {"color": color}, data=data)["result"], in_order(PICTURE, color)) <= 2


@pytest.mark.parametrize("stated_by", ["box", "stream"])
@pytest.mark.parametrize("extent", ["limited", "full"])
@pytest.mark.parametrize("color", ORDERS)
def test_a_gray_avif_file_reaches_from_black_to_white_whatever_its_range(run, color, extent, stated_by):
    gray = np.tile(np.linspace(0, 255, 64).round().astype(np.uint8), (48, 1))
    data = saved(Image.fromarray(gray), "AVIF", quality=100, subsampling="4:0:0", range=extent)
    if stated_by == "stream":
        data = data.replace(b"colr", b"free")
    result = run("DecodeMat", {"color": color}, data=data)["result"]
    assert distance(result, gray if color == "gray" else cv2.cvtColor(gray, cv2.COLOR_GRAY2BGR)) <= 2
    assert (result.min(), result.max()) == (0, 255)


@pytest.mark.parametrize("subsampling", ["4:2:0", "4:4:4"])
def test_an_avif_file_with_colours_is_not_changed(run, subsampling):
    data = saved(Image.fromarray(PICTURE), "AVIF", quality=95, subsampling=subsampling, range="limited")
    expected = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
    assert np.array_equal(run("DecodeMat", {"color": "rgb"}, data=data)["result"], expected)


def bmp(bits: int, masks: tuple[int, int, int] | None, header_size: int, *, top_first: bool = False) -> bytes:
    """Write the picture as a BMP file with such masks, by the description of the format."""
    height, width = PICTURE.shape[:2]
    values = np.zeros((height, width), np.uint32)
    for place, mask in enumerate(masks or (0x7C00, 0x3E0, 0x1F)):
        shift = (mask & -mask).bit_length() - 1
        most = mask >> shift
        values |= np.round(PICTURE[..., place] / 255 * most).astype(np.uint32) << np.uint32(shift)
    rows = values if top_first else values[::-1]
    row_bytes = -(-width * bits // 32) * 4
    pixels = b"".join(row.astype(f"<u{bits // 8}").tobytes().ljust(row_bytes, b"\0") for row in rows)
    signed_height = -height if top_first else height
    header = struct.pack("<IiiHHI20x", header_size, width, signed_height, 1, bits, 3 if masks else 0)
    header += struct.pack("<III", *masks) if masks else b""
    header = header.ljust(header_size, b"\0")
    begin = 14 + len(header)
    return b"BM" + struct.pack("<IHHI", begin + len(pixels), 0, 0, begin) + header + pixels


MASKS = {
    "565": (16, (0xF800, 0x7E0, 0x1F), 8),  # bits, masks, and the largest rounding
    "555": (16, (0x7C00, 0x3E0, 0x1F), 8),
    "555-without-masks": (16, None, 8),
    "565-blue-first": (16, (0x1F, 0x7E0, 0xF800), 8),
    "444": (16, (0xF00, 0xF0, 0xF), 9),
    "888": (32, (0xFF0000, 0xFF00, 0xFF), 1),  # OpenCV's own gray
    "888-red-last": (32, (0xFF, 0xFF00, 0xFF0000), 0),
    "888-shifted": (32, (0xFF000000, 0xFF0000, 0xFF00), 0),
    "10-bits": (32, (0x3FF00000, 0xFFC00, 0x3FF), 1),
}


@pytest.mark.parametrize("color", ORDERS)
@pytest.mark.parametrize("header_size", [40, 108, 124])
@pytest.mark.parametrize("name", MASKS)
def test_the_masks_of_a_bmp_file_say_which_bits_are_a_colour(run, name, header_size, color):
    bits, masks, rounding = MASKS[name]
    result = run("DecodeMat", {"color": color}, data=bmp(bits, masks, header_size))["result"]
    assert distance(result, in_order(PICTURE, color)) <= rounding
    assert np.array_equal(result[0, -1], in_order(PICTURE, color)[0, -1])  # white


def test_the_rows_of_a_bmp_file_with_masks_may_begin_at_the_top(run):
    bits, masks, _ = MASKS["565"]
    upright = run("DecodeMat", data=bmp(bits, masks, 40))["result"]
    assert np.array_equal(run("DecodeMat", data=bmp(bits, masks, 40, top_first=True))["result"], upright)


def test_a_colour_without_a_mask_is_0(run):
    data = bytearray(bmp(32, (0xFF, 0xFF00, 0xFF0000), 40))
    struct.pack_into("<III", data, 54, 0xFF, 0, 0)
    result = run("DecodeMat", {"color": "rgb"}, data=bytes(data))["result"]
    assert np.array_equal(result, PICTURE * np.uint8([1, 0, 0]))


@pytest.mark.parametrize("masks", [(0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF), (0x80000001, 1, 0x80000000)])
@pytest.mark.parametrize("bits", [16, 32])
def test_masks_that_make_no_sense_are_pictures(run, bits, masks):
    data = bytearray(bmp(32, (0xFF, 0xFF00, 0xFF0000), 40))
    struct.pack_into("<H", data, 28, bits)
    struct.pack_into("<III", data, 54, *masks)
    assert run("DecodeMat", data=bytes(data))["result"].shape == PICTURE.shape


def test_a_bmp_file_with_alpha_as_opencv_writes_it_needs_no_more_memory_than_others(run):
    data = cv2.imencode(".bmp", np.dstack([PICTURE, PICTURE[..., 0]]))[1].tobytes()
    assert struct.unpack_from("<I", data, 30) == (3,)  # with masks
    assert np.array_equal(run("DecodeMat", {"max_memory": 6 * 40 * 68}, data=data)["result"], PICTURE)


@pytest.mark.parametrize("depth", [8, 10, 12])
def test_an_avif_file_with_alpha_has_8_bits_after_decoding(run, depth):
    stored = np.dstack([PICTURE, np.full(PICTURE.shape[:2], 200, np.uint8)])
    values = stored if depth == 8 else stored.astype(np.uint16) << depth - 8
    data = cv2.imencode(".avif", values, (cv2.IMWRITE_AVIF_DEPTH, depth, cv2.IMWRITE_AVIF_QUALITY, 100))[1]
    result = run("DecodeMat", {"alpha": True}, data=data.tobytes())["result"]
    assert result.dtype == np.uint8
    assert distance(result, stored) <= 6


def test_a_gray_avif_file_with_alpha_is_refused(run):
    picture = Image.fromarray(np.dstack([PICTURE[..., 0], PICTURE[..., 1]]))
    data = saved(picture, "AVIF", subsampling="4:0:0")
    assert error_of(run, data) == (
        "DecodeMat: the AVIF file is gray with an alpha channel, which is not supported; save it in colours, or "
        "without alpha"
    )


def test_a_gray_jpeg_2000_file_that_says_ycbcr_is_gray(run):
    data = bytearray(saved(Image.fromarray(PICTURE[..., 0]), "JPEG2000"))
    struct.pack_into(">I", data, data.index(b"colr") + 7, 18)
    assert np.array_equal(run("DecodeMat", {"color": "gray"}, data=bytes(data))["result"], PICTURE[..., 0])


@pytest.mark.parametrize("cut", [1, 500, 5000])
def test_a_bmp_file_with_masks_that_ends_early_is_an_error(run, cut):
    data = bmp(32, (0xFF, 0xFF00, 0xFF0000), 40)
    assert "the BMP image, 68 x 40 in" in error_of(run, data[:-cut])


def test_a_tiff_file_in_lab_is_refused(run):
    profiles = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
    lab = ImageCms.profileToProfile(Image.fromarray(PICTURE), *profiles, outputMode="LAB")
    assert error_of(run, saved(lab, "TIFF")) == (
        "DecodeMat: the TIFF file has colours in CIE L*a*b*, which is not supported; save it in RGB"
    )

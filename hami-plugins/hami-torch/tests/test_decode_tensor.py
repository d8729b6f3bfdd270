"""DecodeTensor on the CPU: file formats, colors, EXIF, and rejected files."""

from __future__ import annotations

import struct
import zlib

import hami
import numpy as np
import pytest
import torch
from helpers import message
from PIL import Image

from hami_torch.decode_tensor import _turned_upright


@pytest.mark.parametrize("format", ["PNG", "BMP", "TIFF", "GIF", "WEBP", "JPEG"])
def test_every_format_decodes_to_an_image_with_a_batch_axis(run, encode, chw, format):
    exact = format not in ("GIF", "WEBP", "JPEG")
    request = run("DecodeTensor", data=encode(format))
    assert request["result"].dtype == torch.uint8
    assert request["result"].shape == (1, 3, 30, 40)
    assert request["color"] == "rgb"
    difference = (request["result"][0].int() - chw.int()).abs().float().mean()
    assert difference <= (0 if exact else 12)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
def test_objects_with_the_buffer_protocol_are_accepted(run, encode, chw, kind):
    assert torch.equal(run("DecodeTensor", data=kind(encode("PNG")))["result"][0], chw)


def test_bgr_reverses_the_channels_and_gray_has_one(run, encode, chw):
    bgr = run("DecodeTensor", {"color": "bgr"}, data=encode("PNG"))
    assert torch.equal(bgr["result"][0], chw.flip(0))
    assert bgr["color"] == "bgr"
    assert run("DecodeTensor", {"color": "gray"}, data=encode("PNG"))["result"].shape == (1, 1, 30, 40)


def test_alpha_and_palettes_become_rgb(run, encode):
    rgba = np.full((4, 5, 4), 100, np.uint8)
    assert run("DecodeTensor", data=encode("PNG", pixels=rgba))["result"].shape == (1, 3, 4, 5)


@pytest.mark.parametrize("color", ["rgb", "gray"])
@pytest.mark.parametrize("format", ["PNG", "TIFF"])
def test_images_of_16_bits_keep_their_upper_8_bits(run, encode, format, color):
    pixels = np.array([[0, 255, 256], [1000, 40000, 65535]], np.uint16)
    result = run("DecodeTensor", {"color": color}, data=encode(format, pixels=pixels))["result"]
    assert result[0, 0].tolist() == [[0, 0, 1], [3, 156, 255]]


@pytest.mark.parametrize(("dtype", "mode"), [(np.int32, "I"), (np.float32, "F")])
def test_images_of_32_bits_are_rejected(run, encode, dtype, mode):
    with pytest.raises(hami.RequestError) as raised:
        run("DecodeTensor", data=encode("TIFF", pixels=np.ones((2, 3), dtype)))
    assert message(raised) == (
        f"DecodeTensor takes images of 8 or 16 bits per channel, got a TIFF file of 32 bits (Pillow mode {mode}), "
        "whose value range is unknown; convert it to 8 or 16 bits"
    )


@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_image_is_rotated_as_its_exif_orientation_says(run, encode, image, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = encode("JPEG", exif=exif, quality=95)
    as_stored = run("DecodeTensor", {"exif": False}, data=stored)["result"][0]
    assert as_stored.shape == (3, 30, 40)
    upright = run("DecodeTensor", data=stored)["result"][0]
    # Pillow rotated this one; the code for images decoded on the GPU gives the same result.
    assert torch.equal(_turned_upright(as_stored, orientation), upright)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_a_broken_exif_block_is_ignored(run, encode):
    broken = b"Exif\0\0MM\0*\0\0\0\x08\0\x40"
    assert run("DecodeTensor", data=encode("JPEG", exif=broken))["result"].shape == (1, 3, 30, 40)


def test_every_truncated_jpeg_is_rejected(pipe, encode):
    whole = encode("JPEG")
    decode = pipe("DecodeTensor")
    for length in [*range(1, 40), len(whole) // 2, len(whole) - 200]:
        with pytest.raises(hami.RequestError):
            decode({"data": whole[:length]})
    assert decode({"data": whole})["result"].shape == (1, 3, 30, 40)


def test_the_error_for_a_truncated_file_says_that_it_is_truncated(run, encode):
    half = encode("PNG")[:60]
    with pytest.raises(hami.RequestError) as raised:
        run("DecodeTensor", data=half)
    assert message(raised).startswith("DecodeTensor: the PNG image of 60 bytes cannot be decoded (")
    assert message(raised).endswith("); the file is truncated or damaged")


@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_an_image_over_max_pixels_is_rejected_from_its_header(run, encode, format):
    with pytest.raises(hami.RequestError) as raised:
        run("DecodeTensor", {"max_pixels": 1199}, data=encode(format))
    assert message(raised) == (f'DecodeTensor: the {format} image has 40 x 30 pixels, more than "max_pixels" = 1199')


def tiled(width: int, height: int) -> bytes:
    """Return a gray TIFF file of 16 x 16 pixels in one compressed tile of the given size."""
    pixels = zlib.compress(bytes(width * height))
    entries = {256: 16, 257: 16, 258: 8, 259: 8, 262: 1, 277: 1, 322: width, 323: height, 324: 134, 325: len(pixels)}
    table = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries.items())
    return b"II*\0" + struct.pack("<IH", 8, len(entries)) + table + bytes(4) + pixels


def test_a_tiff_tile_over_max_pixels_is_rejected_even_in_a_small_image(run):
    assert run("DecodeTensor", {"max_pixels": 64 * 32}, data=tiled(64, 32))["result"].shape == (1, 3, 16, 16)
    with pytest.raises(hami.RequestError) as raised:
        run("DecodeTensor", {"max_pixels": 64 * 32 - 1}, data=tiled(64, 32))
    assert message(raised) == (
        'DecodeTensor: the TIFF image has 16 x 16 pixels, but its tiles have 64 x 32, more than "max_pixels" = 2047'
    )


def test_the_separate_limit_of_pillow_is_named(run, encode, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)
    with pytest.raises(hami.RequestError) as raised:
        run("DecodeTensor", {"max_pixels": 10_000}, data=encode("PNG"))
    text = message(raised)
    assert text.startswith(
        'DecodeTensor: the image exceeds the limit of Pillow, which is separate from "max_pixels": '
        "Image size (1200 pixels) exceeds limit of 1000 pixels"
    )
    assert text.endswith("; to raise it, set PIL.Image.MAX_IMAGE_PIXELS in the program")


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (b"", hami.RequestError, "DecodeTensor takes the bytes of an image file, got 0 bytes"),
        (
            b"plain text",
            hami.RequestError,
            "DecodeTensor takes a JPEG, PNG, WebP, BMP, GIF or TIFF file, "
            "got 10 bytes that start with 70 6c 61 69 6e 20 74 65",
        ),
        ("a.jpg", hami.DataTypeError, "DecodeTensor takes the bytes of an image file, got str"),
    ],
)
def test_data_that_is_not_an_image_file_is_rejected(run, data, kind, text):
    with pytest.raises(kind) as raised:
        run("DecodeTensor", data=data)
    assert message(raised) == text


def test_a_broken_file_does_not_fail_other_requests_of_its_batch(pipe, encode):
    requests = [{"data": encode("JPEG")}, {"data": b"\xff\xd8\xff broken"}, {"data": encode("PNG")}]
    with pytest.raises(hami.BatchError) as raised:
        pipe("DecodeTensor", max=4, batching="greedy")(requests)
    assert [index for index, _ in raised.value.errors] == [1]
    assert requests[0]["result"].shape == requests[2]["result"].shape == (1, 3, 30, 40)


def test_max_pixels_must_be_positive(pipe):
    with pytest.raises(hami.ConfigError) as raised:
        pipe("DecodeTensor", max_pixels=0)
    assert message(raised) == 'DecodeTensor: "max_pixels" must be at least 1, got 0'

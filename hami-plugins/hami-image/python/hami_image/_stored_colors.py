"""Decoders of files whose colours OpenCV would change: it ignores what they say about their colours."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]
Decode = Callable[[memoryview, int], Image | None]  # takes a file and flags IMREAD_… of OpenCV

_SRGB = struct.pack(">I", 16)  # a colour space in the box `colr` of a JPEG 2000 file
_BLACK, _WHITE = 16, 235  # of the limited range
_FULL_RANGE = np.clip(np.round((np.arange(256) - _BLACK) * 255 / (_WHITE - _BLACK)), 0, 255).astype(np.uint8)


class Masks(NamedTuple):
    """Where the pixels of a BMP file with 16 or 32 bits per pixel are, and which bits hold red, green and blue."""

    begin: int
    width: int
    height: int  # negative: the top row comes first
    bits: int
    masks: tuple[int, int, int]


def decode_avif(data: memoryview, flags: int, depth: int, is_limited_gray: bool) -> Image | None:
    """Decode an AVIF file whose values have more than 8 bits, or in which black is 16 and white is 235.

    OpenCV keeps 10 and 12 bits beside an alpha channel, and the limited range of a file without colours.
    """
    image: Any = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    if image is not None and image.dtype == np.uint16:
        image = (image >> depth - 8).astype(np.uint8)
    decoded: Image | None = _FULL_RANGE[image] if image is not None and is_limited_gray else image
    return decoded


def decode_sycc(data: memoryview, flags: int, space_at: int) -> Image | None:
    """Decode a JPEG 2000 file in YCbCr with the matrix of ITU-R BT.601, as sYCC says; OpenCV takes that of YUV.

    space_at: place of the colour space in the file; in the copy that OpenCV gets, the three components are RGB
    """
    copy = bytearray(data)
    copy[space_at : space_at + 4] = _SRGB
    image = cv2.imdecode(np.frombuffer(copy, np.uint8), cv2.IMREAD_COLOR_RGB)
    if image is None:
        return None
    return _as_asked(cv2.cvtColor(image[..., [0, 2, 1]], cv2.COLOR_YCrCb2RGB), flags)


def decode_masks(data: memoryview, flags: int, file: Masks) -> Image | None:
    """Decode a BMP file by its masks, and expand each colour to 8 bits.

    OpenCV ignores the masks behind a header of 40 bytes if a pixel has 32 bits, decodes the white of 16 bits as 248,
    and refuses other masks of 16 bits.
    """
    row = -(-file.width * file.bits // 32) * 4  # rows end at four bytes
    pixels = data[file.begin : file.begin + row * abs(file.height)]
    if len(pixels) < row * abs(file.height):
        return None
    values = np.frombuffer(pixels, f"<u{file.bits // 8}").reshape(abs(file.height), -1)[:, : file.width]
    if file.height > 0:
        values = values[::-1]
    image = np.empty((*values.shape, 3), np.uint8)
    for place, mask in enumerate(file.masks):
        if not mask:
            image[..., place] = 0
            continue
        shift = (mask & -mask).bit_length() - 1
        most = mask >> shift
        table = np.round(np.arange(min(most, 255) + 1) * 255 / min(most, 255)).astype(np.uint8)
        shift += max(most.bit_length() - 8, 0)  # of more bits, the first eight
        image[..., place] = table[values >> shift & min(most, 255)]
    return _as_asked(image, flags)


def _as_asked(image: NDArray[Any], flags: int) -> Image:
    """Return an RGB image as `cv2.imdecode` returns it with a flag."""
    if flags & cv2.IMREAD_COLOR_RGB:
        return image
    return cv2.cvtColor(image, cv2.COLOR_RGB2BGR if flags & cv2.IMREAD_COLOR_BGR else cv2.COLOR_RGB2GRAY)  # type: ignore[return-value]

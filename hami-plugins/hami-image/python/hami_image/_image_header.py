"""ImageHeader: the size of an image, read from the header of its file, so that huge images are rejected early."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hami_image._box_file import CODESTREAM, read_avif, read_jpeg2000
from hami_image._native import FileHeader, read_file_header

FORMATS = "JPEG, PNG, WebP, BMP, GIF, TIFF, AVIF or JPEG 2000"

_ANY_SCANS = 2**31
# Bytes of memory per pixel, with the result; measured by the tests.
_WEBP_LOSSY = 6
_WEBP_LOSSLESS = 8
_WEBP_ALPHA = 9
_WEBP_ANIMATED = 12
_GIF = 14
_AVIF = 24
_AVIF_ALPHA = 40
_JPEG2000 = 7
_JPEG2000_COMPONENT = 4
# The most bytes of pixels that one byte of compressed data can hold: LZW, Deflate (both codes) and PackBits.
_TIFF_MAX_RATIO = {5: 1400, 8: 1032, 32946: 1032, 32773: 64}


class ImageHeader(NamedTuple):
    """The properties of an image file that its header states."""

    format: str
    size: tuple[int, int] | None  # (width, height) as stored; None if the header is incomplete or ambiguous
    alpha: bool = False
    tile: tuple[int, int] = (0, 0)  # (width, height) of TIFF tiles: even a small image needs memory for whole tiles
    min_bytes: int = 0  # a smaller TIFF file cannot hold the pixels
    pixel_bytes: int = 0  # least memory that OpenCV needs to decode a pixel, with the result; 0: that of two results
    buffer_bytes: int = 0  # memory that it needs in addition to a result (JPEG) or two color results (TIFF)
    transforms: Sequence[tuple[bytes, int]] = ()  # of an AVIF file, as `transformed` takes them
    problem: str = ""  # why such a file is not decoded; it follows the format in messages
    file: FileHeader | None = None  # how a JPEG, PNG, WebP or TIFF file is decoded

    def memory(self, channels: int) -> int:
        """Return the bytes of memory, with the result, that decoding needs for a result with so many channels."""
        width, height = self.size or (0, 0)
        results = 1 if self.format == "JPEG" and self.buffer_bytes else 2
        channels = 3 if self.format == "TIFF" else channels
        return max(
            results * width * height * channels + self.buffer_bytes,
            2 * width * height * channels,
            width * height * self.pixel_bytes,
        )


def read_header(data: memoryview, max_scans: int = _ANY_SCANS) -> ImageHeader | None:
    """Return the header of an image file, or None if the format is unknown.

    A JPEG file with more than `max_scans` scans has a problem in `file`.
    """
    name, file = read_file_header(data, max_scans)
    if name:
        return _of_file(name, file) if file.is_complete else ImageHeader(name, None)
    start = bytes(data[:16])
    for name, matches, read in _READERS:
        if matches(start):
            try:
                return read(name, data)
            except (struct.error, LookupError, OverflowError):  # the file ends early, or exceeds our limits
                return ImageHeader(name, None)
    return None


def _of_file(name: str, file: FileHeader) -> ImageHeader:
    size, alpha = (file.width, file.height), bool(file.alpha)
    if name == "TIFF":
        return _tiff(name, size, file)
    pixel_bytes = _webp_pixel(file) if name == "WebP" else 0
    return ImageHeader(name, size, alpha, pixel_bytes=pixel_bytes, buffer_bytes=file.coefficient_bytes, file=file)


def _webp_pixel(file: FileHeader) -> int:
    if file.is_animated:
        return _WEBP_LOSSLESS if file.image_end else _WEBP_ANIMATED
    if file.alpha:
        return _WEBP_ALPHA
    return _WEBP_LOSSLESS if file.is_lossless else _WEBP_LOSSY


def _tiff(name: str, size: tuple[int, int], file: FileHeader) -> ImageHeader:
    width, height = size
    tile = (file.tile_width, file.tile_height)
    ratio = _TIFF_MAX_RATIO.get(file.compression)
    part = tile[0] * tile[1] or width * min(file.strip_rows, height)
    return ImageHeader(
        name,
        size,
        tile=tile,
        min_bytes=width * height * file.bits * file.samples // (8 * ratio) if ratio else 0,
        buffer_bytes=2 * part * file.samples * -(-file.most_bits // 8),
        file=file,
    )


def _gif(name: str, data: memoryview) -> ImageHeader:
    return ImageHeader(name, struct.unpack_from("<HH", data, 6), pixel_bytes=_GIF)


def _bmp(name: str, data: memoryview) -> ImageHeader:
    (header_size,) = struct.unpack_from("<I", data, 14)
    if header_size == 12:
        return ImageHeader(name, struct.unpack_from("<HH", data, 18))
    width, height = struct.unpack_from("<ii", data, 18)
    return ImageHeader(name, (abs(width), abs(height)))  # a negative height means top row first


def _avif(name: str, data: memoryview) -> ImageHeader:
    found = read_avif(data)
    pixel_bytes = _AVIF_ALPHA if found.alpha else _AVIF
    return ImageHeader(
        name, found.size, found.alpha, pixel_bytes=pixel_bytes, transforms=found.transforms, problem=found.problem
    )


def _jpeg2000(name: str, data: memoryview) -> ImageHeader:
    found = read_jpeg2000(data)
    if found is None:
        return ImageHeader(name, None)
    size, components = found
    return ImageHeader(name, size, pixel_bytes=_JPEG2000 + _JPEG2000_COMPONENT * components)


_Matches = Callable[[bytes], bool]  # takes the first 16 bytes of a file
_Reads = Callable[[str, memoryview], ImageHeader]

_READERS: tuple[tuple[str, _Matches, _Reads], ...] = (
    ("BMP", lambda start: start.startswith(b"BM"), _bmp),
    ("GIF", lambda start: start.startswith((b"GIF87a", b"GIF89a")), _gif),
    ("AVIF", lambda start: start[4:8] == b"ftyp" and start[8:12] in (b"avif", b"avis"), _avif),
    ("JPEG 2000", lambda start: start.startswith((b"\0\0\0\x0cjP  \r\n\x87\n", CODESTREAM)), _jpeg2000),
)

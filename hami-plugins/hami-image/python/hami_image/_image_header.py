"""ImageHeader: the size of an image, read from the header of its file, so that huge images are rejected early."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hami_image._box_file import CODESTREAM, read_avif, read_jpeg2000
from hami_image._native import FileHeader, read_file_header
from hami_image._stored_colors import Decode, Masks, decode_avif, decode_masks, decode_sycc

FORMATS = "JPEG, PNG, WebP, BMP, GIF, TIFF, AVIF or JPEG 2000"

_ANY_SCANS = 2**31
_USUAL_MASKS = (0xFF0000, 0xFF00, 0xFF)  # OpenCV takes them for any of 32 bits
_BITFIELDS = 3  # a compression of BMP files: none, with masks
_CIELAB = 8  # a kind of colours in TIFF files
# Bytes of memory per pixel, with the result; measured by the tests.
_BMP_MASKS = 16
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
    decode: Decode | None = None  # of a file whose colours OpenCV would change
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
        problem="has colours in CIE L*a*b*, which is not supported; save it in RGB"
        if file.color_space == _CIELAB
        else "",
        file=file,
    )


def _gif(name: str, data: memoryview) -> ImageHeader:
    return ImageHeader(name, struct.unpack_from("<HH", data, 6), pixel_bytes=_GIF)


def _bmp(name: str, data: memoryview) -> ImageHeader:
    (header_size,) = struct.unpack_from("<I", data, 14)
    if header_size == 12:
        return ImageHeader(name, struct.unpack_from("<HH", data, 18))
    width, height, bits, compression = struct.unpack_from("<ii2xHI", data, 18)
    size = (abs(width), abs(height))  # a negative height means top row first
    if compression == _BITFIELDS and bits in (16, 32):
        red, green, blue = struct.unpack_from("<III", data, 54)  # in the header, or behind one of 40 bytes
        if bits == 32 and (red, green, blue) == _USUAL_MASKS:
            return ImageHeader(name, size)
    elif compression == 0 and bits == 16:
        red, green, blue = 0x7C00, 0x3E0, 0x1F
    else:
        return ImageHeader(name, size)
    (begin,) = struct.unpack_from("<I", data, 10)
    decode = functools.partial(decode_masks, file=Masks(begin, abs(width), height, bits, (red, green, blue)))
    return ImageHeader(name, size, pixel_bytes=_BMP_MASKS, decode=decode)


def _avif(name: str, data: memoryview) -> ImageHeader:
    found = read_avif(data)
    pixel_bytes = _AVIF_ALPHA if found.alpha else _AVIF
    decode = None
    if found.is_limited_gray or (found.alpha and found.depth > 8):
        decode = functools.partial(decode_avif, depth=found.depth, is_limited_gray=found.is_limited_gray)
    return ImageHeader(
        name,
        found.size,
        found.alpha,
        pixel_bytes=pixel_bytes,
        transforms=found.transforms,
        problem=found.problem,
        decode=decode,
    )


def _jpeg2000(name: str, data: memoryview) -> ImageHeader:
    found = read_jpeg2000(data)
    if found is None:
        return ImageHeader(name, None)
    decode = None
    if found.sycc_at and found.components >= 3:
        decode = functools.partial(decode_sycc, space_at=found.sycc_at)
    return ImageHeader(name, found.size, pixel_bytes=_JPEG2000 + _JPEG2000_COMPONENT * found.components, decode=decode)


_Matches = Callable[[bytes], bool]  # takes the first 16 bytes of a file
_Reads = Callable[[str, memoryview], ImageHeader]

_READERS: tuple[tuple[str, _Matches, _Reads], ...] = (
    ("BMP", lambda start: start.startswith(b"BM"), _bmp),
    ("GIF", lambda start: start.startswith((b"GIF87a", b"GIF89a")), _gif),
    ("AVIF", lambda start: start[4:8] == b"ftyp" and start[8:12] in (b"avif", b"avis"), _avif),
    ("JPEG 2000", lambda start: start.startswith((b"\0\0\0\x0cjP  \r\n\x87\n", CODESTREAM)), _jpeg2000),
)

"""ImageHeader: the size of an image, read from the header of its file, so that huge images are rejected early."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from hami_image._jpeg_file import EOI, FRAMES, SOI, SOS, segments
from hami_image._png_file import chunks

FORMATS = "JPEG, PNG, WebP, BMP, GIF or TIFF"

_TIFF_SIZE_TAGS = _TIFF_WIDTH, _TIFF_HEIGHT, _TIFF_TILE_WIDTH, _TIFF_TILE_HEIGHT = 256, 257, 322, 323
_TIFF_BITS, _TIFF_COMPRESSION, _TIFF_SAMPLES = 258, 259, 277
# The most bytes of pixels that one byte of compressed data can hold: LZW, Deflate (both codes) and PackBits.
_TIFF_MAX_RATIO = {5: 1400, 8: 1032, 32946: 1032, 32773: 64}
_TIFF_INTEGER_BYTES = {3: 2, 4: 4, 16: 8}  # by field type: SHORT, LONG, LONG8
_MAX_TIFF_FIELDS = 65_535  # the largest number that a classic TIFF file can state


class ImageHeader(NamedTuple):
    """The properties of an image file that its header states."""

    format: str
    size: tuple[int, int] | None  # (width, height) as stored; None if the header is incomplete or ambiguous
    alpha: bool = False
    is_deep: bool = False  # a PNG file with 16 bits per channel
    tile: tuple[int, int] = (0, 0)  # (width, height) of TIFF tiles: even a small image needs memory for whole tiles
    min_bytes: int = 0  # a smaller TIFF file cannot hold the pixels


def read_header(data: memoryview) -> ImageHeader | None:
    """Return the header of an image file, or None if the format is unknown."""
    start = bytes(data[:16])
    for name, matches, read in _READERS:
        if matches(start):
            try:
                return read(name, data)
            except (struct.error, IndexError, OverflowError):  # the file ends early, or exceeds our limits
                return ImageHeader(name, None)
    return None


def _jpeg(name: str, data: memoryview) -> ImageHeader:
    for segment in segments(data):
        if segment.marker in (SOI, EOI, SOS):  # a second start, the end, or pixels before a frame
            break
        if segment.marker in FRAMES:
            height, width = struct.unpack_from(">HH", data, segment.begin + 1)
            return ImageHeader(name, (width, height))
    return ImageHeader(name, None)


def _png(name: str, data: memoryview) -> ImageHeader:
    length, kind, width, height, depth, color = struct.unpack_from(">I4sIIBB", data, 8)
    if kind != b"IHDR" or length != 13:
        return ImageHeader(name, None)
    # OpenCV ignores the transparent value of a gray image (color type 0).
    alpha = color in (4, 6) or (color != 0 and any(chunk.kind == b"tRNS" for chunk in chunks(data)))
    return ImageHeader(name, (width, height), alpha, is_deep=depth == 16)


def _gif(name: str, data: memoryview) -> ImageHeader:
    return ImageHeader(name, struct.unpack_from("<HH", data, 6))


def _bmp(name: str, data: memoryview) -> ImageHeader:
    (header_size,) = struct.unpack_from("<I", data, 14)
    if header_size == 12:
        return ImageHeader(name, struct.unpack_from("<HH", data, 18))
    width, height = struct.unpack_from("<ii", data, 18)
    return ImageHeader(name, (abs(width), abs(height)))  # a negative height means top row first


def _webp(name: str, data: memoryview) -> ImageHeader:
    kind = bytes(data[12:16])
    if kind == b"VP8X":
        width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
        data[29]  # raises IndexError if the file ends within the header
        return ImageHeader(name, (width, height), bool(data[20] & 0x10))
    if kind == b"VP8L":
        signature, bits = struct.unpack_from("<BI", data, 20)
        if signature != 0x2F:
            return ImageHeader(name, None)
        return ImageHeader(name, ((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1), bool(bits >> 28 & 1))
    if kind == b"VP8 " and bytes(data[23:26]) == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, 26)
        return ImageHeader(name, (width & 0x3FFF, height & 0x3FFF))
    return ImageHeader(name, None)


def _tiff(name: str, data: memoryview) -> ImageHeader:
    order = "<" if data[0] == ord("I") else ">"
    big = struct.unpack_from(order + "H", data, 2)[0] == 43  # BigTIFF: 64-bit counts and offsets
    count_format, entry_format = (order + "Q", order + "HHQ8s") if big else (order + "H", order + "HHI4s")
    (at,) = struct.unpack_from(order + ("Q" if big else "I"), data, 8 if big else 4)
    (count,) = struct.unpack_from(count_format, data, at)
    at += struct.calcsize(count_format)
    sizes: dict[int, int] = {}  # by tag
    others = {_TIFF_BITS: 1, _TIFF_COMPRESSION: 1, _TIFF_SAMPLES: 1}  # the least, where the value is elsewhere
    for _ in range(min(count, _MAX_TIFF_FIELDS)):
        tag, field_type, values, value = struct.unpack_from(entry_format, data, at)
        if tag in _TIFF_SIZE_TAGS:
            length = _TIFF_INTEGER_BYTES.get(field_type)
            # Ambiguous: libtiff may read such a field differently, or use the other field with this tag.
            if length is None or length > len(value) or values != 1 or tag in sizes:
                return ImageHeader(name, None)
            sizes[tag] = int.from_bytes(value[:length], "little" if order == "<" else "big")
        elif tag in others and field_type == 3 and values == 1:
            others[tag] = struct.unpack_from(order + "H", value)[0]
        at += struct.calcsize(entry_format)
    if _TIFF_WIDTH not in sizes or _TIFF_HEIGHT not in sizes:
        return ImageHeader(name, None)
    tile = (sizes.get(_TIFF_TILE_WIDTH, 0), sizes.get(_TIFF_TILE_HEIGHT, 0))
    bits = sizes[_TIFF_WIDTH] * sizes[_TIFF_HEIGHT] * others[_TIFF_BITS] * others[_TIFF_SAMPLES]
    ratio = _TIFF_MAX_RATIO.get(others[_TIFF_COMPRESSION])
    return ImageHeader(
        name, (sizes[_TIFF_WIDTH], sizes[_TIFF_HEIGHT]), tile=tile, min_bytes=bits // (8 * ratio) if ratio else 0
    )


_Matches = Callable[[bytes], bool]  # takes the first 16 bytes of a file
_Reads = Callable[[str, memoryview], ImageHeader]

_READERS: tuple[tuple[str, _Matches, _Reads], ...] = (
    ("JPEG", lambda start: start.startswith(b"\xff\xd8\xff"), _jpeg),
    ("PNG", lambda start: start.startswith(b"\x89PNG\r\n\x1a\n"), _png),
    ("WebP", lambda start: start.startswith(b"RIFF") and start[8:12] == b"WEBP", _webp),
    ("BMP", lambda start: start.startswith(b"BM"), _bmp),
    ("GIF", lambda start: start.startswith((b"GIF87a", b"GIF89a")), _gif),
    ("TIFF", lambda start: start.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")), _tiff),
)

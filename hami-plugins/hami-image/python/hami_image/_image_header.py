"""Reads the size of a picture from the first bytes of its file, so that a huge one is refused before decoding."""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

FORMATS = "JPEG, PNG, WebP, BMP, GIF or TIFF"

_MOST_PARTS = 10_000  # segments or chunks before the pixels; each costs us time in Python
_MOST_JUNK = 65_536  # bytes between the segments of a JPEG file
# Between segments libjpeg skips what is no marker (stuffed zeros, fill bytes) and markers that stand alone.
_JPEG_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd7\xff]")
_TIFF_SIDES = _TIFF_WIDTH, _TIFF_HEIGHT, _TIFF_TILE_WIDTH, _TIFF_TILE_HEIGHT = 256, 257, 322, 323
_TIFF_INTEGERS = {3: 2, 4: 4, 16: 8}  # type -> bytes: SHORT, LONG, LONG8


class ImageHeader(NamedTuple):
    """What the header says: (width, height) as stored, None if the file ends before it or can be read in two ways."""

    format: str
    size: tuple[int, int] | None
    alpha: bool = False
    tile: tuple[int, int] = (0, 0)  # of a TIFF file: one is decoded as a whole, however small the picture


def read_header(data: memoryview) -> ImageHeader | None:
    """Return what the file says about itself, None if it is of no format known here."""
    start = bytes(data[:16])
    for name, matches, read in _READERS:
        if matches(start):
            try:
                return read(name, data)
            except (struct.error, IndexError, OverflowError):  # longer than the file, or than we read
                return ImageHeader(name, None)
    return None


def _jpeg(name: str, data: memoryview) -> ImageHeader:
    """Go from segment to segment exactly as libjpeg does, else a file could show us another size than the decoder."""
    at, junk = 2, 0
    for _ in range(_MOST_PARTS):
        found = _JPEG_MARKER.search(data, at, at + _MOST_JUNK - junk)
        if not found:
            break
        junk += found.start() - at
        at = found.end()
        marker = data[at - 1]
        if marker in (0xD8, 0xD9, 0xDA):  # a second start, the end, or pixel data before any frame
            break
        (length,) = struct.unpack_from(">H", data, at)
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # a frame, not tables
            height, width = struct.unpack_from(">HH", data, at + 3)
            return ImageHeader(name, (width, height))
        if length < 2:
            break
        at += length
    return ImageHeader(name, None)


def _png(name: str, data: memoryview) -> ImageHeader:
    length, kind, width, height, _, color = struct.unpack_from(">I4sIIBB", data, 8)
    if kind != b"IHDR" or length != 13:
        return ImageHeader(name, None)
    # Of a gray picture (color 0) OpenCV does not read which value is transparent.
    return ImageHeader(name, (width, height), color in (4, 6) or (color != 0 and _png_has_transparency(data)))


def _png_has_transparency(data: memoryview) -> bool:
    """Whether a tRNS chunk comes before the pixels."""
    at = 33
    for _ in range(_MOST_PARTS):
        if at + 8 > len(data):
            return False
        length, kind = struct.unpack_from(">I4s", data, at)
        if kind in (b"tRNS", b"IDAT"):
            return kind == b"tRNS"
        at += 12 + length
    raise IndexError("too many chunks")


def _gif(name: str, data: memoryview) -> ImageHeader:
    return ImageHeader(name, struct.unpack_from("<HH", data, 6))


def _bmp(name: str, data: memoryview) -> ImageHeader:
    (header_size,) = struct.unpack_from("<I", data, 14)
    if header_size == 12:
        return ImageHeader(name, struct.unpack_from("<HH", data, 18))
    width, height = struct.unpack_from("<ii", data, 18)
    return ImageHeader(name, (abs(width), abs(height)))  # a negative height says that the top row comes first


def _webp(name: str, data: memoryview) -> ImageHeader:
    kind = bytes(data[12:16])
    if kind == b"VP8X":
        width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
        data[29]  # IndexError if the file ends inside
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
    sides: dict[int, int] = {}
    for _ in range(min(count, 65535)):
        tag, kind, values, value = struct.unpack_from(entry_format, data, at)
        if tag in _TIFF_SIDES:
            width = _TIFF_INTEGERS.get(kind)
            if width is None or width > len(value) or values != 1 or tag in sides:  # libtiff may take another one
                return ImageHeader(name, None)
            sides[tag] = int.from_bytes(value[:width], "little" if order == "<" else "big")
        at += struct.calcsize(entry_format)
    if _TIFF_WIDTH not in sides or _TIFF_HEIGHT not in sides:
        return ImageHeader(name, None)
    tile = (sides.get(_TIFF_TILE_WIDTH, 0), sides.get(_TIFF_TILE_HEIGHT, 0))
    return ImageHeader(name, (sides[_TIFF_WIDTH], sides[_TIFF_HEIGHT]), tile=tile)


_READERS = (
    ("JPEG", lambda start: start.startswith(b"\xff\xd8\xff"), _jpeg),
    ("PNG", lambda start: start.startswith(b"\x89PNG\r\n\x1a\n"), _png),
    ("WebP", lambda start: start.startswith(b"RIFF") and start[8:12] == b"WEBP", _webp),
    ("BMP", lambda start: start.startswith(b"BM"), _bmp),
    ("GIF", lambda start: start.startswith((b"GIF87a", b"GIF89a")), _gif),
    ("TIFF", lambda start: start.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")), _tiff),
)

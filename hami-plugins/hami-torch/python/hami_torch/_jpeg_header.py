"""Reads what has to be known of a JPEG before it is decoded: its size, how many channels, which way is up."""

from __future__ import annotations

import struct
from typing import NamedTuple

_ORIENTATION = 0x0112

_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # the others of these are tables
_ALONE = frozenset([0x01, *range(0xD0, 0xD9)])  # markers without a length
_NO_FRAME = frozenset([0xD9, 0xDA])  # the end, or pixels, before any frame

_segment = struct.Struct(">BBH").unpack_from
_frame = struct.Struct(">HHB").unpack_from


class JpegHeader(NamedTuple):
    """What the first bytes of the file say."""

    width: int
    height: int
    channels: int
    orientation: int  # of EXIF, 1 … 8; 1 is upright


def read_jpeg_header(data: bytes | memoryview) -> JpegHeader | None:
    """Return the header; None if the data is no JPEG or ends before its frame."""
    if data[:3] != b"\xff\xd8\xff":
        return None
    try:
        return _read(data)
    except (struct.error, IndexError):
        return None


def _read(data: bytes | memoryview) -> JpegHeader | None:
    at, orientation = 2, 1
    while True:
        start, marker, length = _segment(data, at)
        if start != 0xFF:
            return None
        if marker in _FRAMES:
            height, width, channels = _frame(data, at + 5)
            return JpegHeader(width, height, channels, orientation) if length >= 2 else None
        if marker == 0xFF:  # any number of fill bytes before a marker
            at += 1
        elif marker in _ALONE:
            at += 2
        elif marker in _NO_FRAME or length < 2:
            return None
        else:
            if marker == 0xE1 and data[at + 4 : at + 10] == b"Exif\0\0":
                orientation = _orientation(data[at + 10 : at + 2 + length])
            at += 2 + length


def _orientation(tiff: bytes | memoryview) -> int:
    try:
        order = "<" if bytes(tiff[:2]) == b"II" else ">"
        (at,) = struct.unpack_from(order + "I", tiff, 4)
        (count,) = struct.unpack_from(order + "H", tiff, at)
        for entry in range(count):
            tag, _, _, value = struct.unpack_from(order + "HHIH", tiff, at + 2 + 12 * entry)
            if tag == _ORIENTATION:
                return value if 1 <= value <= 8 else 1
    except struct.error:  # broken metadata does not make a picture unreadable
        pass
    return 1

"""Reads what has to be known of a JPEG before it is decoded: its size, how many channels, which way is up."""

from __future__ import annotations

import struct
from typing import NamedTuple

_ORIENTATION = 0x0112


class JpegHeader(NamedTuple):
    """What the first bytes of the file say."""

    width: int
    height: int
    channels: int
    orientation: int  # of EXIF, 1 … 8; 1 is upright


def read_jpeg_header(data: memoryview) -> JpegHeader | None:
    """Return the header; None if the data is no JPEG or ends before its frame."""
    if bytes(data[:3]) != b"\xff\xd8\xff":
        return None
    try:
        return _read(data)
    except (struct.error, IndexError):
        return None


def _read(data: memoryview) -> JpegHeader | None:
    at, orientation = 2, 1
    while data[at] == 0xFF:
        while data[at] == 0xFF:  # any number of fill bytes before a marker
            at += 1
        marker = data[at]
        at += 1
        if marker == 0x01 or 0xD0 <= marker <= 0xD8:  # stand-alone markers
            continue
        if marker in (0xD9, 0xDA):  # the end, or pixels before any frame
            return None
        (length,) = struct.unpack_from(">H", data, at)
        if length < 2:
            return None
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # a frame, not tables
            height, width, channels = struct.unpack_from(">HHB", data, at + 3)
            return JpegHeader(width, height, channels, orientation)
        if marker == 0xE1 and bytes(data[at + 2 : at + 8]) == b"Exif\0\0":
            orientation = _orientation(data[at + 8 : at + length])
        at += length
    return None


def _orientation(tiff: memoryview) -> int:
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

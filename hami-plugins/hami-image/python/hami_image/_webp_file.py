"""WebP files: their chunks, and the first image of an animation, which OpenCV composes with memory for four images."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

_MAX_CHUNKS = 10_000  # for damaged or malicious files
_ANIMATED, _EXIF, _ALPHA = 0x02, 0x08, 0x10  # flags of a VP8X chunk
_FRAME_HEADER = 16  # bytes of an ANMF chunk before the image


class Chunk(NamedTuple):
    """A chunk: its type, where it starts, and the range of its content."""

    kind: bytes
    at: int
    begin: int
    end: int


class Extended(NamedTuple):
    """What the chunks of a file with a VP8X chunk say."""

    size: tuple[int, int]
    alpha: bool
    animated: bool
    exif: bool


def chunks(data: memoryview, at: int = 12, end: int | None = None) -> Iterator[Chunk]:
    """Yield the chunks of a WebP file, or of a part of one.

    Raises:
        struct.error: a chunk has no complete header.
    """
    end = len(data) if end is None else min(end, len(data))
    for _ in range(_MAX_CHUNKS):
        if at >= end:
            return
        kind, length = struct.unpack_from("<4sI", data, at)
        yield Chunk(kind, at, at + 8, at + 8 + length)
        at += 8 + length + length % 2


def extended(data: memoryview) -> Extended:
    """Read the VP8X chunk at the start of a file. Raises struct.error or IndexError if the file ends within it."""
    width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
    data[29]  # raises IndexError if the file ends within the header
    flags = data[20]
    return Extended((width, height), bool(flags & _ALPHA), bool(flags & _ANIMATED), bool(flags & _EXIF))


def has_chunk(data: memoryview, kind: bytes) -> bool:
    return any(chunk.kind == kind for chunk in chunks(data))


def plain_first_image(data: memoryview) -> memoryview | None:
    """Return the chunk with the first image of an animation, if it is the whole picture that viewers show first.

    Else, or if the file is not such an animation, or has an orientation, or an alpha channel: None.
    """
    if bytes(data[12:16]) != b"VP8X":
        return None
    header = extended(data)
    if not header.animated or header.alpha or header.exif:
        return None
    for frame in chunks(data):  # without alpha in the header, a frame has no chunk with alpha either
        if frame.kind != b"ANMF":
            continue
        left, top, width, height = (
            int.from_bytes(data[at : at + 3], "little") for at in range(frame.begin, frame.begin + 12, 3)
        )
        if left or top or (width + 1, height + 1) != header.size:
            return None
        for image in chunks(data, frame.begin + _FRAME_HEADER, frame.end):
            if image.end > len(data):
                return None
            if image.kind == b"VP8 " or (image.kind == b"VP8L" and not data[image.begin + 4] & 0x10):
                return data[image.at : image.end]
        return None
    return None


def without_animation(data: memoryview) -> bytes | memoryview:
    """Return a file that has only the first image of an animation, if `plain_first_image` finds it."""
    image = plain_first_image(data)
    if image is None:
        return data
    padding = b"\0" * (len(image) % 2)
    return b"".join((b"RIFF", struct.pack("<I", 4 + len(image) + len(padding)), b"WEBP", image, padding))

"""PNG files: their chunks, and the cases in which OpenCV by itself needs memory for four images and more."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

_BLOCK = 1 << 20  # channel values that are converted from 16 bits to 8 bits at a time
# For damaged or malicious files. Real files have far fewer: their pixels are in chunks of 8 KiB or more.
_MAX_CHUNKS = {b"IDAT": 10_000, b"IEND": 1_000_000}


class Chunk(NamedTuple):
    """A chunk: its type, and its range including length, type and checksum."""

    kind: bytes
    begin: int
    end: int


def chunks(data: memoryview, stop: bytes = b"IDAT") -> Iterator[Chunk]:
    """Yield the chunks before the pixels (IDAT) or before the end (IEND).

    Raises:
        IndexError: there are too many.
        struct.error: the file ends before `stop`.
    """
    at = 8
    for _ in range(_MAX_CHUNKS[stop]):
        length, kind = struct.unpack_from(">I4s", data, at)
        if kind == stop:
            return
        yield Chunk(kind, at, at + 12 + length)
        at += 12 + length
    raise IndexError("too many chunks")


def without_animation(data: memoryview) -> bytes | memoryview:
    """Return a PNG file without the chunk that makes it an animation, whose decoding needs memory for four images."""
    found = [chunk for chunk in chunks(data) if chunk.kind == b"acTL"]
    if not found:
        return data
    starts = [0, *(chunk.end for chunk in found)]
    stops = [*(chunk.begin for chunk in found), len(data)]
    return b"".join(data[start:stop] for start, stop in zip(starts, stops, strict=True))


def decode_deep(encoded: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8] | None:
    """Decode a PNG file with alpha and 16 bits per channel to 8 bits, with memory for two results at most.

    cv2.imdecode would need memory for four: it copies what it has decoded. cv2.imread decodes into an array.

    Raises:
        struct.error, IndexError: the file is not complete.
    """
    for _ in chunks(encoded.data, b"IEND"):  # cv2.imread accepts a file that ends before
        pass
    width, height = size
    image = np.empty((height, width, 4), np.uint16)
    with os.fdopen(os.memfd_create("hami-image"), "wb") as file:
        file.write(encoded.data)
        file.flush()
        if cv2.imread(f"/proc/self/fd/{file.fileno()}", image, cv2.IMREAD_UNCHANGED) is not image:
            return None
    values = image.reshape(-1).view(np.uint8)
    high = 1 if sys.byteorder == "little" else 0
    for start in range(0, image.size, _BLOCK):
        stop = min(start + _BLOCK, image.size)
        values[start:stop] = values[2 * start + high : 2 * stop : 2]  # NumPy copies what overlaps
    del values
    image.resize((height, width, 2), refcheck=False)  # frees the second half of the memory
    return image.view(np.uint8)

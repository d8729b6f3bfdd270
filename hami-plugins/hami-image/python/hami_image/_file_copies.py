"""Copies of image files that OpenCV decodes as it should: completely, with the stored pixels, with little memory."""

from __future__ import annotations

import os
import struct
import sys

import cv2
import numpy as np
from numpy.typing import NDArray

from hami_image._native import FileHeader, JpegProblem

_JPEG_PADDING = b"\xff\0" * 8  # libjpeg reads at most 8 bytes ahead; no complete Huffman table has a code of ones only
_BLOCK = 1 << 20  # channel values that are converted from 16 bits to 8 bits at a time
_TIFF_INTEGERS = {3: "H", 4: "I", 16: "Q"}  # by field type: SHORT, LONG, LONG8
_NORMAL_ORIENTATION = 1
_ASSOCIATED = 1  # kind of an alpha channel: colours are stored multiplied by it


class EndsEarlyError(Exception):
    """The file ends before its pixels."""


def complete_jpeg(data: memoryview, header: FileHeader, max_scans: int) -> bytes | memoryview:
    """Return what a decoder should get instead of a JPEG file, so that it fails if the data of the file end early.

    libjpeg replaces missing data by gray when it reaches a marker, and fails when it reaches the end of its input.
    Therefore the data of the only scan of a picture are returned without the marker behind them. The scans of a
    picture with several scans are compared with the least number of bits that their blocks need.

    Raises:
        ValueError: the picture is not complete, has more scans than `max_scans`, or is of an unsupported kind; the text
            follows "the JPEG image" in messages.
        EndsEarlyError: the file ends within a segment.
    """
    problem, details = header.jpeg_problem, header.details
    if problem == JpegProblem.ENDS_EARLY:
        raise EndsEarlyError
    if problem == JpegProblem.UNSUPPORTED_PROCESS:
        raise ValueError(
            f"uses coding process {details[0]}; save it as a baseline or progressive JPEG with Huffman codes"
        )
    if problem == JpegProblem.TOO_MANY_SCANS:
        raise ValueError(f"has more than max_scans = {max_scans} scans; save it again or raise max_scans")
    if problem:
        texts = {
            JpegProblem.TWO_FRAMES: "has two frames",
            JpegProblem.NO_COMPONENTS: "has a frame without components",
            JpegProblem.SHORT_SCAN: f"has a scan of {details[0]:,} bytes, which needs at least {details[1]:,}",
            JpegProblem.MISSING_COMPONENTS: "has no data for some of its components",
        }
        raise ValueError(f"{texts[JpegProblem(problem)]}; the file is truncated or damaged")
    return b"".join((data[: header.data_end], _JPEG_PADDING)) if header.data_end else data


def png_without_animation(data: memoryview, header: FileHeader) -> bytes | memoryview:
    """Return a PNG file without the chunk that makes it an animation, whose decoding needs memory for four images."""
    if header.ends_early:
        raise EndsEarlyError
    if not header.patch_count:
        return data
    starts = [0, *(patch.end for patch in header.patches)]
    stops = [*(patch.begin for patch in header.patches), len(data)]
    return b"".join(data[start:stop] for start, stop in zip(starts, stops, strict=True))


def decode_deep_png(encoded: NDArray[np.uint8], header: FileHeader) -> NDArray[np.uint8] | None:
    """Decode a PNG file with alpha and 16 bits per channel to 8 bits, with memory for two results at most.

    cv2.imdecode would need memory for four: it copies what it has decoded. cv2.imread decodes into an array.
    """
    if not header.has_end:  # cv2.imread accepts a file that ends before
        raise EndsEarlyError
    image = np.empty((header.height, header.width, 4), np.uint16)
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
    image.resize((header.height, header.width, 2), refcheck=False)  # frees the second half of the memory
    return image.view(np.uint8)


def webp_first_image(data: memoryview, header: FileHeader) -> bytes | memoryview:
    """Return a file that has only the first image of an animation, if that is the whole picture; else the file."""
    if not header.image_end:
        return data
    image = data[header.image_begin : header.image_end]
    padding = b"\0" * (len(image) % 2)
    return b"".join((b"RIFF", struct.pack("<I", 4 + len(image) + len(padding)), b"WEBP", image, padding))


def tiff_with_stored_pixels(data: memoryview, header: FileHeader, *, turn: bool) -> bytes | memoryview:
    """Return a file of which OpenCV returns the colours that are stored.

    Of a file with an alpha channel, OpenCV returns the colours multiplied by alpha. It also turns the picture as the
    file's orientation says, in any mode; with `turn` = false, the copy has the normal orientation.
    """
    if header.ends_early:
        raise EndsEarlyError
    order = ">" if header.is_big_endian else "<"
    changes = [
        (patch.begin, order + _TIFF_INTEGERS[patch.type], _NORMAL_ORIENTATION if patch.is_orientation else _ASSOCIATED)
        for patch in header.patches
        if not (patch.is_orientation and turn)
    ]
    if all(struct.unpack_from(form, data, at)[0] == value for at, form, value in changes):
        return data
    copy = bytearray(data)
    for at, form, value in changes:
        struct.pack_into(form, copy, at, value)
    return bytes(copy)

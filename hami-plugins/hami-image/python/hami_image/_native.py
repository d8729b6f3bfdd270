"""The walk over the header of a JPEG, PNG, WebP or TIFF file, in the native library. It runs without the GIL."""

from __future__ import annotations

import ctypes
import functools
from enum import IntEnum
from typing import Any

import hami
import numpy as np

_MAX_PATCHES = 16
_MAX_INTEGER = 2**64 - 1


class JpegProblem(IntEnum):
    """Why a JPEG file is not decoded."""

    NONE = 0
    UNSUPPORTED_PROCESS = 1
    TWO_FRAMES = 2
    NO_COMPONENTS = 3
    TOO_MANY_SCANS = 4
    SHORT_SCAN = 5
    MISSING_COMPONENTS = 6
    ENDS_EARLY = 7


FORMATS = ("", "JPEG", "PNG", "WebP", "TIFF")  # by the number that `read_header` returns


class Patch(ctypes.Structure):
    """A place in a file: a chunk of a PNG file that is left out, or a field of a TIFF file that is replaced."""

    _fields_ = (
        ("begin", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("type", ctypes.c_int32),
        ("is_orientation", ctypes.c_int32),
    )
    begin: int
    end: int
    type: int
    is_orientation: int


class FileHeader(ctypes.Structure):
    """What the header of a file says; src/image_header.hpp describes the fields."""

    _fields_ = (
        ("is_complete", ctypes.c_int32),
        ("alpha", ctypes.c_int32),
        ("width", ctypes.c_uint64),
        ("height", ctypes.c_uint64),
        ("is_deep", ctypes.c_int32),
        ("ends_early", ctypes.c_int32),
        ("has_end", ctypes.c_int32),
        ("jpeg_problem", ctypes.c_int32),
        ("details", ctypes.c_uint64 * 2),
        ("coefficient_bytes", ctypes.c_uint64),
        ("data_end", ctypes.c_uint64),
        ("is_animated", ctypes.c_int32),
        ("is_lossless", ctypes.c_int32),
        ("image_begin", ctypes.c_uint64),
        ("image_end", ctypes.c_uint64),
        ("tile_width", ctypes.c_uint64),
        ("tile_height", ctypes.c_uint64),
        ("strip_rows", ctypes.c_uint64),
        ("bits", ctypes.c_int32),
        ("most_bits", ctypes.c_int32),
        ("compression", ctypes.c_int32),
        ("samples", ctypes.c_int32),
        ("color_space", ctypes.c_int32),
        ("is_big_endian", ctypes.c_int32),
        ("patch_count", ctypes.c_int32),
        ("patch_array", Patch * _MAX_PATCHES),
    )
    is_complete: int
    alpha: int
    width: int
    height: int
    is_deep: int
    ends_early: int
    has_end: int
    jpeg_problem: int
    details: ctypes.Array[ctypes.c_uint64]
    coefficient_bytes: int
    data_end: int
    is_animated: int
    is_lossless: int
    image_begin: int
    image_end: int
    tile_width: int
    tile_height: int
    strip_rows: int
    bits: int
    most_bits: int
    compression: int
    samples: int
    color_space: int
    is_big_endian: int
    patch_count: int
    patch_array: ctypes.Array[Patch]

    @property
    def patches(self) -> list[Patch]:
        return list(self.patch_array[: self.patch_count])


_READ_HEADER = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.POINTER(FileHeader)
)


@functools.cache
def _functions() -> Any:
    return hami.native.functions("hami-image::ImageFunctions", read_header=_READ_HEADER)


def read_file_header(data: memoryview, max_scans: int) -> tuple[str, FileHeader]:
    """Return the format of a file and what its header says; "" if it is of another format."""
    header = FileHeader()
    start: bytes | int = 0
    if type(data.obj) is bytes and len(data.obj) == data.nbytes:  # the usual case, without an array
        start = data.obj
    elif data.nbytes:
        start = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    found = _functions().read_header(start, data.nbytes, min(max_scans, _MAX_INTEGER), ctypes.byref(header))
    return FORMATS[found], header

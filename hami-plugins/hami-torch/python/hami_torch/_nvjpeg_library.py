"""libnvjpeg as Python calls it: where it is found, and its functions, which are the same from CUDA 11 to 13.

What they do: https://docs.nvidia.com/cuda/nvjpeg/
"""

from __future__ import annotations

import ctypes
import glob
import importlib.util
import os
from collections.abc import Iterator
from ctypes import c_int, c_size_t, c_uint, c_void_p
from functools import lru_cache
from typing import Any

from hami_torch._torch import torch

BACKEND_DEFAULT, BACKEND_HARDWARE = 0, 3
PLANES = {"gray": 1, "rgb": 3, "bgr": 3}
OUTPUT_FORMATS = {"gray": 2, "rgb": 3, "bgr": 4}

SUCCESS, ALLOCATOR_FAILURE = 0, 5
OF_THE_FILE = frozenset([SUCCESS, 2, 3, 4, 10])  # what another file may change: INVALID_PARAMETER, BAD_JPEG, …
_STATUSES = (
    "SUCCESS",
    "NOT_INITIALIZED",
    "INVALID_PARAMETER",
    "BAD_JPEG",
    "JPEG_NOT_SUPPORTED",
    "ALLOCATOR_FAILURE",
    "EXECUTION_FAILED",
    "ARCH_MISMATCH",
    "INTERNAL_ERROR",
    "IMPLEMENTATION_NOT_SUPPORTED",
    "INCOMPLETE_BITSTREAM",
)


def status_name(status: int) -> str:
    return f"NVJPEG_STATUS_{_STATUSES[status]}" if 0 <= status < len(_STATUSES) else f"status {status}"


# What only looks at something keeps Python's lock: to get it back takes longer where many threads want it.
_LOOKING = {
    "nvjpegGetProperty": (c_int, c_void_p),
    "nvjpegJpegStreamGetFrameDimensions": (c_void_p, c_void_p, c_void_p),
    "nvjpegJpegStreamGetExifOrientation": (c_void_p, c_void_p),
    "nvjpegDecodeBatchedSupported": (c_void_p, c_void_p, c_void_p),
    "nvjpegDecodeBatchedInitialize": (c_void_p, c_void_p, c_int, c_int, c_int),
}
_WORKING = {
    "nvjpegCreateEx": (c_int, c_void_p, c_void_p, c_uint, c_void_p),
    "nvjpegJpegStateCreate": (c_void_p, c_void_p),
    "nvjpegJpegStreamCreate": (c_void_p, c_void_p),
    "nvjpegDecodeBatched": (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p),
    "nvjpegDecode": (c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_void_p),
}
_PARSE = {"nvjpegJpegStreamParseHeader": (c_void_p, c_void_p, c_size_t, c_void_p)}
_LONG = 1 << 18  # bytes; to parse a file is to look through all of it, a tenth of a millisecond for each megabyte


class Library:
    """One libnvjpeg. Its functions have the names and parameters of nvjpeg.h and return a status."""

    def __init__(self, path: str) -> None:
        """Load it; raises OSError if it cannot be, AttributeError if it is too old to have these functions."""
        self.path = path
        keeping, releasing = ctypes.PyDLL(path), ctypes.CDLL(path)
        vars(self).update(_declared(keeping, _LOOKING), **_declared(releasing, _WORKING))
        (self._parse,) = _declared(keeping, _PARSE).values()
        (self._parse_long,) = _declared(releasing, _PARSE).values()
        self.version = ".".join(str(self._property(number)) for number in range(3))

    def nvjpegJpegStreamParseHeader(self, handle: c_void_p, data: bytes, length: int, parsed: c_void_p) -> int:
        parse = self._parse if length < _LONG else self._parse_long
        return parse(handle, data, length, parsed)  # type: ignore[no-any-return]

    def _property(self, number: int) -> int:
        value = c_int()
        vars(self)["nvjpegGetProperty"](number, ctypes.byref(value))
        return value.value


def _declared(loaded: ctypes.CDLL, signatures: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    functions = {name: getattr(loaded, name) for name in signatures}
    for name, function in functions.items():
        function.argtypes, function.restype = signatures[name], c_int
    return functions


@lru_cache(maxsize=1)
def find_library() -> Library | None:
    """Return the first libnvjpeg that can be loaded, None if there is none."""
    for path in _places():
        try:
            return Library(path)
        except (OSError, AttributeError):  # not there, or older than these functions
            continue
    return None


def _places() -> Iterator[str]:
    """Yield where it may be: in torchvision's wheel, in NVIDIA's (nvidia-nvjpeg), on the system."""
    major = (torch.version.cuda or "").partition(".")[0]
    for package, patterns in (
        ("torchvision", ["../torchvision.libs/libnvjpeg*.so.*"]),
        ("nvidia", ["nvjpeg/lib/libnvjpeg.so.*", "cu*/lib/libnvjpeg.so.*"]),
    ):
        spec = importlib.util.find_spec(package)
        folders = (spec.submodule_search_locations if spec else None) or ()
        found = [path for folder in folders for each in patterns for path in glob.glob(os.path.join(folder, each))]
        yield from sorted(map(os.path.normpath, found), key=lambda path: not path.endswith(f".so.{major}"))
    if major:
        yield f"libnvjpeg.so.{major}"

"""Find libnvjpeg and call it through ctypes. The functions used here are the same from CUDA 11 to 13.

Reference: https://docs.nvidia.com/cuda/nvjpeg/
"""

from __future__ import annotations

import ctypes
import glob
import importlib.util
import os
from collections.abc import Callable, Iterator
from ctypes import c_int, c_size_t, c_uint, c_void_p
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from hami_torch._torch import torch

# The hybrid backend uses the CPU and the GPU. Others decode a file otherwise in a batch of another size.
BACKEND_HYBRID, BACKEND_HARDWARE = 1, 3
INTERPOLATE_CHROMA = 32  # NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION
_FIRST_WITH_INTERPOLATION = (12, 1)  # version
PLANES = {"gray": 1, "rgb": 3, "bgr": 3}
OUTPUT_FORMATS = {"gray": 2, "rgb": 3, "bgr": 4}

SUCCESS, ALLOCATOR_FAILURE = 0, 5
# Statuses that are about the file: SUCCESS, INVALID_PARAMETER, BAD_JPEG, JPEG_NOT_SUPPORTED, INCOMPLETE_BITSTREAM.
FILE_STATUSES = frozenset([SUCCESS, 2, 3, 4, 10])
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


def interpolates(version: str) -> bool:
    """Whether a version of nvJPEG, such as 12.3.1, can interpolate subsampled chroma."""
    major, minor, *_ = map(int, version.split("."))
    return (major, minor) >= _FIRST_WITH_INTERPOLATION


def status_name(status: int) -> str:
    return f"NVJPEG_STATUS_{_STATUSES[status]}" if 0 <= status < len(_STATUSES) else f"status {status}"


# Short calls keep the GIL: with many threads, acquiring it again takes longer than the call.
_SHORT_CALLS = {
    "nvjpegGetProperty": (c_int, c_void_p),
    "nvjpegJpegStreamGetFrameDimensions": (c_void_p, c_void_p, c_void_p),
    "nvjpegJpegStreamGetExifOrientation": (c_void_p, c_void_p),
    "nvjpegDecodeBatchedSupported": (c_void_p, c_void_p, c_void_p),
    "nvjpegDecodeBatchedInitialize": (c_void_p, c_void_p, c_int, c_int, c_int),
}
_LONG_CALLS = {
    "nvjpegCreateEx": (c_int, c_void_p, c_void_p, c_uint, c_void_p),
    "nvjpegJpegStateCreate": (c_void_p, c_void_p),
    "nvjpegJpegStreamCreate": (c_void_p, c_void_p),
    "nvjpegDecodeBatched": (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p),
    "nvjpegDecode": (c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_void_p),
}
_PARSE_CALL = {"nvjpegJpegStreamParseHeader": (c_void_p, c_void_p, c_size_t, c_void_p)}
# Files of this many bytes are parsed without the GIL: parsing scans the whole file, about 0.1 ms per megabyte.
_LONG_FILE_BYTES = 1 << 18


class Library:
    """A loaded libnvjpeg; its functions have the names and parameters of nvjpeg.h and return a status."""

    def __init__(self, path: str) -> None:
        """Load a library; raises OSError if that fails, AttributeError if it is too old to have these functions."""
        self.path = path
        with_gil, without_gil = ctypes.PyDLL(path), ctypes.CDLL(path)
        vars(self).update(_declared(with_gil, _SHORT_CALLS), **_declared(without_gil, _LONG_CALLS))
        (self._parse,) = _declared(with_gil, _PARSE_CALL).values()
        (self._parse_long,) = _declared(without_gil, _PARSE_CALL).values()
        self.version = ".".join(str(self._property(number)) for number in range(3))

    def nvjpegJpegStreamParseHeader(self, handle: c_void_p, data: bytes, length: int, parsed: c_void_p) -> int:
        parse = self._parse if length < _LONG_FILE_BYTES else self._parse_long
        status: int = parse(handle, data, length, parsed)
        return status

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., int]: ...

    def _property(self, number: int) -> int:
        value = c_int()
        vars(self)["nvjpegGetProperty"](number, ctypes.byref(value))
        return value.value


def _declared(library: ctypes.CDLL, signatures: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    functions = {name: getattr(library, name) for name in signatures}
    for name, function in functions.items():
        function.argtypes, function.restype = signatures[name], c_int
    return functions


@lru_cache(maxsize=1)
def find_library() -> Library | None:
    """Return the first libnvjpeg that loads, None if there is none."""
    for path in _candidate_paths():
        try:
            return Library(path)
        except (OSError, AttributeError):  # missing, or too old
            continue
    return None


def _candidate_paths() -> Iterator[str]:
    """Yield where the library may be: in the wheel of torchvision, in the wheel nvidia-nvjpeg, on the system."""
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

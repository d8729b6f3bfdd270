"""Finds nvJPEG in the packages that contain it, without importing them, and on the system."""

from __future__ import annotations

import ctypes
from pathlib import Path

from hami_cuda._driver import cuda_version
from hami_cuda._libraries import installed

PLACES = (
    ("nvidia", "nvidia/nvjpeg/lib/libnvjpeg.so.*"),  # the wheels of nvJPEG
    ("nvidia", "nvidia/cu*/lib/libnvjpeg.so.*"),
    ("torchvision", "torchvision.libs/libnvjpeg*.so.*"),
)
MAJORS = (13, 12, 11)


def find_library() -> str | None:
    """Return the newest libnvjpeg that the driver supports; None if none is installed."""
    found = {major: path for path in reversed(list(installed(PLACES))) if (major := _major(path))}
    version = cuda_version()
    for major in MAJORS:
        if version and major > version[0]:
            continue
        if major in found:
            return str(found[major])
        if _loads(name := f"libnvjpeg.so.{major}"):
            return name
    return None


def _major(path: Path) -> int:
    """Return the major version at the end of a name such as libnvjpeg.so.12; 0 if there is none."""
    number = path.name.partition(".so.")[2].partition(".")[0]
    return int(number) if number.isdigit() else 0


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True

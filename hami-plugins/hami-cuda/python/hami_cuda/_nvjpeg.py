"""Finds nvJPEG in the packages that contain it, without importing them, and on the system."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from hami_cuda._driver import cuda_version

# Relative to the folder that contains the package.
PLACES = (
    ("nvidia", "nvidia/nvjpeg/lib/libnvjpeg.so.*"),  # the wheels of nvJPEG
    ("nvidia", "nvidia/cu*/lib/libnvjpeg.so.*"),
    ("torchvision", "torchvision.libs/libnvjpeg*.so.*"),
)
MAJORS = (13, 12, 11)


def find_library() -> str | None:
    """Return the newest libnvjpeg that the driver supports; None if none is installed."""
    found = {major: path for path in reversed(list(_installed())) if (major := _major(path))}
    version = cuda_version()
    for major in MAJORS:
        if version and major > version[0]:
            continue
        if major in found:
            return str(found[major])
        if _loads(name := f"libnvjpeg.so.{major}"):
            return name
    return None


def _installed() -> Iterator[Path]:
    for package, pattern in PLACES:
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations if spec else None) or ():
            yield from sorted(Path(folder).parent.glob(pattern))


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

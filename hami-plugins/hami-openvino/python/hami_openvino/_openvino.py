"""Finds OpenVINO's C library in the installed openvino package, without importing that package."""

from __future__ import annotations

import re
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import hami

MIN_VERSION = (2024, 0)


def version() -> str | None:
    """Return the version of the installed openvino package, or None if its metadata is missing."""
    try:
        return metadata.version("openvino")
    except metadata.PackageNotFoundError:
        return None


def find_library() -> Path:
    """Return the path of libopenvino_c.so in the installed openvino package.

    Raises:
        hami.PluginError: openvino is not installed, is too old, or does not contain the C library.
    """
    spec = find_spec("openvino")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    if not folders:
        raise hami.PluginError("OpenVINO is not installed: pip install openvino")
    found = version()
    numbers = tuple(int(part) for part in re.findall(r"\d+", found or "")[:2])
    if found and numbers < MIN_VERSION:
        raise hami.PluginError(f"openvino {found} is too old; 2024.0 or newer is required: pip install -U openvino")
    libraries = [library for folder in folders for library in sorted(folder.glob("libs/libopenvino_c.so*"))]
    if not libraries:
        raise hami.PluginError(
            f"openvino {found or ''} in {folders[0]} does not contain libs/libopenvino_c.so; wheels contain it since "
            "2024.3: pip install -U openvino"
        )
    return libraries[0]

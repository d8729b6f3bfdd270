"""Finds the C library in the installed openvino package, without importing that."""

from __future__ import annotations

import re
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import hami

OLDEST = (2024, 0)


def version() -> str | None:
    """Return the version of the installed package, None if its metadata does not tell."""
    try:
        return metadata.version("openvino")
    except metadata.PackageNotFoundError:
        return None


def find_library() -> Path:
    """Return the path of libopenvino_c.so; raises hami.PluginError, one sentence, if there is none to be used."""
    spec = find_spec("openvino")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    if not folders:
        raise hami.PluginError("OpenVINO is not installed: pip install openvino")
    found = version()
    numbers = tuple(int(part) for part in re.findall(r"\d+", found or "")[:2])
    if found and numbers < OLDEST:
        raise hami.PluginError(f"openvino {found} is too old, 2024.0 or newer is needed: pip install -U openvino")
    libraries = [library for folder in folders for library in sorted(folder.glob("libs/libopenvino_c.so*"))]
    if not libraries:
        raise hami.PluginError(
            f"openvino {found or ''} in {folders[0]} has no libs/libopenvino_c.so, which its wheels have "
            "from 2024.3 on: pip install -U openvino"
        )
    return libraries[0]

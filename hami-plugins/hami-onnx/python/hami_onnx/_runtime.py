"""Finds ONNX Runtime's library in the installed onnxruntime package, without importing that package."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import hami

_NAME = "libonnxruntime.so."


@cache
def find_library() -> Path:
    """Return the path of ONNX Runtime's library.

    Raises:
        hami.PluginError: onnxruntime is not installed, has no such library, or two versions are in its folder.
    """
    spec = find_spec("onnxruntime")
    if spec is None:
        raise hami.PluginError("onnxruntime is not installed; run: pip install onnxruntime")
    folders = [Path(folder) / "capi" for folder in spec.submodule_search_locations or []]
    # A version has digits only: a link such as libonnxruntime.so.1 names the same library once more.
    found = [
        file for folder in folders for file in sorted(folder.glob(f"{_NAME}*")) if _version_of(file).count(".") == 2
    ]
    if not found:
        places = ", ".join(map(str, folders)) or spec.origin
        raise hami.PluginError(
            f"the installed onnxruntime has no library {_NAME}* (looked in {places}); wheels have it since 1.19; "
            "run: pip install --upgrade --force-reinstall onnxruntime"
        )
    if len(found) > 1:
        versions = " and ".join(map(_version_of, found))
        raise hami.PluginError(
            f"the onnxruntime packages {versions} are both in {found[0].parent}; run: pip uninstall -y onnxruntime "
            "onnxruntime-gpu && pip install onnxruntime"
        )
    return found[0]


def version() -> str:
    """Return the version of the installed onnxruntime."""
    return _version_of(find_library())


def _version_of(library: Path) -> str:
    return library.name.removeprefix(_NAME)

"""Finds the files of a model: the ONNX file and its external data (weights)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple


class FileStamp(NamedTuple):
    """Identifies the content of a file: if the stamp is the same, the file is assumed to be unchanged."""

    path: str
    modified_ns: int
    size: int


def find_model_files(path: str, external_files: Sequence[str]) -> tuple[str, tuple[FileStamp, ...]]:
    """Return the path to open and the stamps of all files of the model.

    If `path` is a symbolic link, the external data may be next to the link or next to its target. The path to open is
    the first of these two that has all external data files next to it.
    """
    model = _stamp(path)
    for candidate in (path, model.path):
        files = [os.path.join(os.path.dirname(candidate), name) for name in external_files]
        if all(os.path.isfile(file) for file in files):
            return candidate, (model, *map(_stamp, files))
    return path, (model,)


def _stamp(path: str) -> FileStamp:
    status = os.stat(path)
    return FileStamp(os.path.realpath(path), status.st_mtime_ns, status.st_size)

"""Finds the files of a model: the ONNX file and its external data (weights), without parsing the graph."""

from __future__ import annotations

import functools
import os
import re
from typing import NamedTuple

# An external data file is named by the protobuf pair ("location", file name); a length precedes each of the two.
_LOCATION = re.compile(rb"\n\x08location\x12(?:([\x01-\x7f])|([\x80-\xff])([\x01-\x7f]))", re.DOTALL)
_MAX_PAIR = 1 << 14  # bytes: longer than such a pair with any valid path
_BLOCK = 1 << 20  # bytes read at a time


class FileStamp(NamedTuple):
    """Identifies the content of a file: if the stamp is the same, the file is assumed to be unchanged."""

    path: str
    modified_ns: int
    size: int


def find_model_files(path: str) -> tuple[str, tuple[FileStamp, ...]]:
    """Return the path to open and the stamps of all files of the model.

    If `path` is a symbolic link, the external data may be next to the link or next to its target. The path to open is
    the first of these two that has all external data files next to it.
    """
    model = _stamp(path)
    names = _external_data_names(model)
    for candidate in (path, model.path):
        files = [os.path.join(os.path.dirname(candidate), name) for name in names]
        if all(os.path.isfile(file) for file in files):
            return candidate, (model, *map(_stamp, files))
    return path, (model,)


def _stamp(path: str) -> FileStamp:
    status = os.stat(path)
    return FileStamp(os.path.realpath(path), status.st_mtime_ns, status.st_size)


@functools.lru_cache
def _external_data_names(model: FileStamp) -> tuple[str, ...]:
    """Return the names of the external data files.

    The result may contain bytes that only look like a name. That is harmless, because no file has such a name.
    """
    names = set()
    before = b""
    with open(model.path, "rb") as file:
        while block := file.read(_BLOCK):
            content = before + block
            for found in _LOCATION.finditer(content):
                short, low, high = found.groups()
                length = short[0] if short else (low[0] & 0x7F) | high[0] << 7
                name = content[found.end() : found.end() + length]
                if len(name) == length:  # otherwise the name continues in the next block and is found there
                    names.add(os.fsdecode(name))
            before = content[-_MAX_PAIR:]
    return tuple(sorted(names))

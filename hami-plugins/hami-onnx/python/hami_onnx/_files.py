"""Which files a model consists of: its own and those that hold its weights, found without reading its graph."""

from __future__ import annotations

import functools
import os
import re
from typing import NamedTuple

# How a model names a file of weights: the pair of "location" and the name, each with its length before it.
_LOCATION = re.compile(rb"\n\x08location\x12(?:([\x01-\x7f])|([\x80-\xff])([\x01-\x7f]))", re.DOTALL)
_LONGEST = 1 << 14  # of such a pair, and more than a path may have
_BLOCK = 1 << 20


class Stamp(NamedTuple):
    """What tells whether a file is still the one that was opened."""

    path: str
    changed: int
    size: int


def path_and_stamps(path: str) -> tuple[str, tuple[Stamp, ...]]:
    """Return the path to open, and the stamps of all files of that model.

    A link is opened as it is given, for its weights may lie beside it as links too, under names that what they lead to
    does not have; where they lie beside what it leads to, that is opened.
    """
    model = _stamp(path)
    names = _weights(model)
    for given in (path, model.path):
        files = [os.path.join(os.path.dirname(given), name) for name in names]
        if all(os.path.isfile(file) for file in files):
            return given, (model, *map(_stamp, files))
    return path, (model,)


def _stamp(path: str) -> Stamp:
    status = os.stat(path)
    return Stamp(os.path.realpath(path), status.st_mtime_ns, status.st_size)


@functools.lru_cache
def _weights(model: Stamp) -> tuple[str, ...]:
    """Return the names of the files with weights; of bytes that only look like one there is no file, and no harm."""
    names = set()
    before = b""
    with open(model.path, "rb") as file:
        while block := file.read(_BLOCK):
            content = before + block
            for found in _LOCATION.finditer(content):
                short, low, high = found.groups()
                length = short[0] if short else (low[0] & 0x7F) | high[0] << 7
                name = content[found.end() : found.end() + length]
                if len(name) == length:  # else it goes on in the next block, and is found there
                    names.add(os.fsdecode(name))
            before = content[-_LONGEST:]
    return tuple(sorted(names))

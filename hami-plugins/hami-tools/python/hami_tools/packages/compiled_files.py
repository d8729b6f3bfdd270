"""Compares compiled Python with its sources, in a process of its own: reading a damaged file may end it.

Reads a JSON list of sources from the standard input, and writes the list of compiled files that differ.
"""

from __future__ import annotations

import importlib.util
import json
import marshal
import os
import sys
from pathlib import Path

HEADER = 16  # bytes: magic number, flags, and the time and size of the source, or its hash


def used(compiled: bytes, source: Path, text: bytes) -> bool:
    """Return whether Python runs a compiled file instead of compiling the source again."""
    if len(compiled) < HEADER or compiled[:4] != importlib.util.MAGIC_NUMBER:
        return False
    flags = int.from_bytes(compiled[4:8], "little")
    if flags & 1:  # with a hash of the source, which Python compares only if the second bit is set
        return not flags & 2 or compiled[8:16] == importlib.util.source_hash(text)
    status = os.stat(source)
    stamp = (int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)
    return stamp == (int.from_bytes(compiled[8:12], "little"), int.from_bytes(compiled[12:16], "little"))


def same(compiled: bytes, source: Path, text: bytes, level: int) -> bool:
    """Return whether a compiled file is what the source compiles to, but for the path in it."""
    try:
        expected = compile(text, str(source), "exec", dont_inherit=True, optimize=level)
        return bool(marshal.loads(compiled[HEADER:]) == expected)
    except (SyntaxError, ValueError, EOFError, TypeError):
        return False


def changed(source: Path) -> list[str]:
    """Return the compiled files of a source that Python would run and that differ from it."""
    found = []
    for level, optimization in enumerate(("", 1, 2)):
        file = Path(importlib.util.cache_from_source(str(source), optimization=optimization))
        if file.is_file() and source.is_file():
            compiled, text = file.read_bytes(), source.read_bytes()
            if used(compiled, source, text) and not same(compiled, source, text, level):
                found.append(str(file))
    return found


if __name__ == "__main__":
    json.dump([file for source in json.load(sys.stdin) for file in changed(Path(source))], sys.stdout)

"""Writes files atomically: a reader sees the old content or the new content, never a part of it."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file under a temporary name, then rename it to `path`."""
    name = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        with open(name, "xb") as file:  # with the mode that the umask gives
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise

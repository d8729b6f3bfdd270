"""Reads regular files, also those of installed distributions: a pipe or a device might never end."""

from __future__ import annotations

import importlib.metadata as metadata
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

MAX_BYTES = 64 << 20  # a catalogue of some thousand plugins has a few megabytes
_PART = 1 << 20  # bytes of one read


class Incomplete(ValueError):
    """The content is cut off, or larger than the limit."""


def read_file(path: Path) -> bytes:
    """Return the content of a regular file.

    Raises OSError if it cannot be read or is not a regular file, and Incomplete if it is too large.
    """
    with open_file(path) as file:
        return bounded(file.read)


def open_file(path: Path) -> IO[bytes]:
    """Open a regular file; anything else, such as a pipe or a device, might never end. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe may have no writer
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("it is not a regular file")
    return os.fdopen(descriptor, "rb")


def make_private(folder: Path) -> None:
    """Create a folder and those around it, for this user alone. Raises OSError."""
    for each in (*reversed(folder.parents), folder):
        each.mkdir(mode=0o700, exist_ok=True)  # with parents=True, the mode is that of the last folder only


def distributions(**context: Any) -> Iterator[metadata.Distribution]:
    """Yield the distributions as importlib.metadata does, without metadata that are not regular files."""
    for found in metadata.distributions(**context):
        path = getattr(found, "_path", None)
        yield _Installed(path) if isinstance(found, metadata.PathDistribution) and isinstance(path, Path) else found


class _Installed(metadata.PathDistribution):
    """A distribution in a folder. Its names, entry points and files are read from its texts."""

    def read_text(self, filename: str | os.PathLike[str]) -> str | None:
        path = Path(str(self._path), filename)
        return None if path.exists() and not path.is_file() else super().read_text(filename)


def bounded(read: Callable[[int], bytes]) -> bytes:
    """Read to the end, at most MAX_BYTES."""
    text = bytearray()
    while part := read(min(_PART, MAX_BYTES + 1 - len(text))):
        text += part
        if len(text) > MAX_BYTES:
            raise Incomplete(f"it has more than {MAX_BYTES >> 20} MiB")
    return bytes(text)

"""Where the cuts of models are kept, by the content of the model and by all that a cut depends on."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hami.packages import make_private

FORMAT = 1  # of the cached files


def folder() -> Path:
    """Return the folder of the cache: HAMI_ACCEL_CACHE, or hami-accel in the user's cache folder.

    Raises:
        OSError: The user has no home folder, as in many containers.
    """
    if given := os.environ.get("HAMI_ACCEL_CACHE"):
        return Path(given)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hami-accel"
    except RuntimeError as error:  # neither HOME nor an entry in the list of users
        raise FileNotFoundError(f"there is no folder for a cache: {error}; set HAMI_ACCEL_CACHE") from error


def content_key(files: Iterable[str | os.PathLike[str]], *settings: object) -> str:
    """Return a name for the content of files and for settings."""
    digest = hashlib.sha256(repr((FORMAT, *settings)).encode())
    for file in files:
        with open(file, "rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
        digest.update(b"\0")
    return digest.hexdigest()[:32]


def read(key: str) -> Any:
    """Return what was stored, or None. A damaged file counts as missing."""
    with contextlib.suppress(OSError, ValueError):
        return json.loads((folder() / f"{key}.json").read_text("utf-8"))
    return None


def write(key: str, value: Any) -> None:
    """Store a value. A folder that cannot be written is ignored: the cut is then made again at the next load."""
    with contextlib.suppress(OSError):
        make_private(folder())  # models run from it
        replace(folder() / f"{key}.json", json.dumps(value).encode())


def replace(file: Path, data: bytes) -> None:
    """Write a file whole or not at all, and leave no part of it.

    Raises:
        OSError: It cannot be written, as on a full disk.
    """
    handle, part = tempfile.mkstemp(dir=file.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.replace(part, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(part)
        raise

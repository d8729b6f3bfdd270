"""Compares installed files with the sizes and hashes that the RECORD of their distribution lists."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata as metadata
import os
import re
import shlex
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from hami._errors import PluginError
from hami._plugins.files import distributions, open_file
from hami._text import printable

_SHARED_LIBRARY = re.compile(r"\.so(\.\d+)*$")


def check_library(path: os.PathLike[str] | str, distribution: str) -> None:
    """Raise PluginError if a library is not the file that its distribution has installed.

    The loader would map what it finds, and a damaged file ends the process. The size of every shared library of the
    distribution is compared, because they may load each other, and the hash of this one. A file that no RECORD lists,
    as in an editable installation, is not checked.
    """
    library = os.path.realpath(path)
    problems: dict[str, str] = {}
    whole = set()  # `pip install --target` leaves the RECORD of the previous version; the file may match either
    for found, file, recorded in _recorded_libraries(distribution):
        problem = _problem_with(file, recorded, with_hash=file == library)
        if problem is None:
            whole.add(file)
        else:
            folder = os.path.realpath(str(found.locate_file("")))
            problems[file] = f"{problem}; reinstall it: {reinstall(distribution, folder)}"
    for file, problem in problems.items():
        if file not in whole:
            raise PluginError(f'"{printable(file)}" is damaged: {problem}')


def _recorded_libraries(distribution: str) -> Iterator[tuple[metadata.Distribution, str, metadata.PackagePath]]:
    """Yield the shared libraries that the installations of a distribution list, with their real paths."""
    for found in distributions(name=distribution):
        try:
            if (found.read_text("INSTALLER") or "").strip() == "conda":  # it changes the binaries that it installs
                continue
            files = found.files or []
        except Exception:  # damaged metadata; `hami doctor` reports them
            continue
        for file in files:
            if _SHARED_LIBRARY.search(file.name):
                yield found, os.path.realpath(str(found.locate_file(file))), file


def _problem_with(path: str, recorded: metadata.PackagePath, *, with_hash: bool) -> str | None:
    """Return how a file differs from its line in RECORD; None if it does not, or if it is missing."""
    try:
        status = os.stat(path)
    except OSError:  # the loader reports it, if it needs the file
        return None
    if recorded.size is not None and status.st_size != recorded.size:
        return f"it has {status.st_size} bytes, and {recorded.size} were installed"
    if not with_hash or recorded.hash is None or recorded.hash.mode != "sha256":
        return None
    current = _cached_sha256(path, status.st_size, status.st_mtime_ns)
    return None if current == recorded.hash.value else "its content is not what was installed"


@cache
def _cached_sha256(path: str, _size: int, _modified: int) -> str:
    return digest(Path(path))


def digest(path: Path, algorithm: str = "sha256") -> str:
    """Return the hash of a file as RECORD has it; empty if the file cannot be read, or is not a regular file."""
    hashed = hashlib.new(algorithm)
    try:
        with open_file(path) as file:
            while part := file.read(1 << 20):
                hashed.update(part)
    except (OSError, ValueError):  # ValueError: the path has a NUL character
        return ""
    return base64.urlsafe_b64encode(hashed.digest()).decode().rstrip("=")


def own_folders() -> list[str]:
    """Return the folders into which an installer puts the packages of this Python."""
    return [os.path.realpath(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")]


def reinstall(distribution: str, folder: str) -> str:
    """Return the command that reinstalls a distribution in its folder.

    In a folder with the sources of a project, as of an editable installation, only the metadata are made again: an
    installation with --target would overwrite the sources.
    """
    if any(Path(folder, name).is_file() for name in ("pyproject.toml", "setup.py", "setup.cfg")):
        return f"pip install --no-deps --editable {shlex.quote(folder)}"
    if folder in own_folders():
        return f"pip install --force-reinstall --no-deps {distribution}"
    return f"pip install --upgrade --no-deps --target {shlex.quote(folder)} {distribution}"

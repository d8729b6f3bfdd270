"""Compares installed files with the sizes and hashes that the RECORD of their distribution lists.

Like the policy, it finds damage and mistakes. It does not stop an attacker with the rights of this user.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import re
import shlex
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hami._errors import PluginError
from hami._plugins.files import distributions, make_private, open_file
from hami._plugins.plugin import normalised
from hami._text import printable

_SHARED_LIBRARY = re.compile(r"\.so(\.\d+)*$")
_STRONG = ("sha256=", "sha384=", "sha512=")


class _Line(NamedTuple):
    """One file of a RECORD. Its hash, such as "sha256=…", and its size are texts, which may be empty."""

    name: str
    hash: str
    size: str
    file: str  # its real path
    folder: str  # of the installation


def _recorded(distribution: str, *, strict: bool) -> Iterator[_Line]:
    """Yield the files that the installations of a distribution list; damaged metadata is an error if `strict`.

    `pip install --target` leaves the RECORD of the previous version; a file may match either.
    """
    for found in distributions(name=distribution):
        try:
            if (found.read_text("INSTALLER") or "").strip() == "conda":  # it changes the binaries that it installs
                continue
            rows = [row[:3] for row in csv.reader((found.read_text("RECORD") or "").splitlines()) if len(row) > 2]
        except Exception:  # `hami doctor` reports it
            if strict:
                raise
            continue
        folder = os.path.realpath(str(found.locate_file("")))
        for name, hash_, size in rows:
            yield _Line(name, hash_, size, os.path.realpath(os.path.join(folder, name)), folder)


def _damaged(line: _Line, problem: str, distribution: str) -> PluginError:
    remedy = reinstall(distribution, line.folder)
    return PluginError(f'"{printable(line.file)}" is damaged: {problem}; reinstall it: {remedy}')


def check_library(path: os.PathLike[str] | str, distribution: str) -> None:
    """Raise PluginError if a library is not the file that its distribution has installed.

    The loader would map what it finds, and a damaged file ends the process. The size of every shared library of the
    distribution is compared, because they may load each other, and the hash of this one. A file that no RECORD lists,
    as in an editable installation, is not checked.
    """
    library = os.path.realpath(path)
    errors: dict[str, PluginError] = {}
    whole = set()
    for line in _recorded(distribution, strict=False):
        if not _SHARED_LIBRARY.search(line.name):
            continue
        problem = _problem_with(line, with_hash=line.file == library)
        if problem is None:
            whole.add(line.file)
        else:
            errors[line.file] = _damaged(line, problem, distribution)
    for file, error in errors.items():
        if file not in whole:
            raise error


def _problem_with(line: _Line, *, with_hash: bool) -> str | None:
    """Return how a file differs from its line in RECORD; None if it does not, or if it is missing."""
    try:
        status = os.stat(line.file)
    except OSError:  # the loader reports it, if it needs the file
        return None
    if line.size.isdecimal() and status.st_size != int(line.size):
        return f"it has {status.st_size} bytes, and {line.size} were installed"
    if not with_hash or not line.hash.startswith("sha256="):
        return None
    current = _cached_sha256(line.file, status.st_size, status.st_mtime_ns)
    return None if line.hash == f"sha256={current}" else "its content is not what was installed"


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


def require_whole(distribution: str) -> None:
    """Raise PluginError for the first file of a plugin that is missing, or is not what was installed.

    Files that no RECORD lists with a hash pass, as those of an editable installation. A file that was compared earlier,
    also by another process, is not read again while its size, times and inode are the same: they are kept in a file of
    the user for each distribution.
    """
    lines: dict[str, list[_Line]] = {}
    for line in _recorded(distribution, strict=True):
        if line.hash.startswith(_STRONG):
            lines.setdefault(line.file, []).append(line)
    listed = hashlib.sha256(os.fsencode(repr(lines))).hexdigest()
    memory = _memory(distribution)
    known = _known(memory, listed)
    if known and all(_facts(file) == facts for file, facts in known.items()):
        return
    seen: dict[str, list[int] | None] = {}
    for file, of_file in lines.items():
        seen[file] = _facts(file)
        hashes = (line.hash.partition("=") for line in of_file)
        if not any(digest(Path(file), kind) == value for kind, _, value in hashes):
            problem = "its content is not what was installed" if seen[file] else "it is missing"
            raise _damaged(of_file[0], problem, distribution)
    if seen:
        _keep(memory, listed, seen)


def _facts(path: str) -> list[int] | None:
    """Return what changes if a file is written; users cannot set the time of the last change of its inode."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev]


def _memory(distribution: str) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(cache, "hami", "checked", f"{normalised(distribution)}.json")


def _known(memory: Path, listed: str) -> dict[str, Any]:
    """Return the facts of the files that were compared with this RECORD."""
    try:
        content = json.loads(memory.read_bytes())
        return dict(content["files"]) if content["listed"] == listed else {}
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return {}


def _keep(memory: Path, listed: str, seen: dict[str, list[int] | None]) -> None:
    """Write the facts of the files; without a folder for them, the files are compared each time."""
    with suppress(OSError):
        make_private(memory.parent)
        handle, temporary = tempfile.mkstemp(dir=memory.parent)
        with os.fdopen(handle, "w") as file:
            json.dump({"listed": listed, "files": seen}, file)
        os.replace(temporary, memory)


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

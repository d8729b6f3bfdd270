"""Compares every file of a distribution with its RECORD before a plugin is imported, if that is asked for.

A file that was compared earlier is not read again while its size, times and inode are the same: they are kept in a
file of the user for each distribution. Like the policy, the check finds damage and mistakes. It does not
protect against an attacker who can write files as this user.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from hami._errors import PluginError
from hami._plugins.files import distributions, make_private
from hami._plugins.plugin import normalised
from hami._plugins.recorded_files import digest, reinstall
from hami._text import printable

STRONG = ("sha256=", "sha384=", "sha512=")


def require_whole(distribution: str) -> None:
    """Raise PluginError for the first file that is missing, or is not what was installed.

    Files that no RECORD lists with a hash pass, as those of an editable installation. Later calls, also of other
    processes, take the facts of the files in place of their contents.
    """
    records = [
        (os.path.realpath(str(found.locate_file(""))), found.read_text("RECORD") or "")
        for found in distributions(name=distribution)
        if (found.read_text("INSTALLER") or "").strip() != "conda"  # it changes the binaries that it installs
    ]
    listed = hashlib.sha256(os.fsencode(repr(records))).hexdigest()
    memory = _memory(distribution)
    known = _known(memory, listed)
    if known and all(_facts(file) == facts for file, facts in known.items()):
        return
    seen: dict[str, list[int] | None] = {}
    for file, hashes in _hashes(records).items():
        seen[file] = _facts(file)
        if not any(digest(Path(file), kind) == value for kind, _, value in (each.partition("=") for each in hashes)):
            problem = "its content is not what was installed" if seen[file] else "it is missing"
            remedy = reinstall(distribution, next(iter(hashes.values())))
            raise PluginError(f'"{printable(file)}" is damaged: {problem}; reinstall it: {remedy}')
    if seen:
        _keep(memory, listed, seen)


def _hashes(records: list[tuple[str, str]]) -> dict[str, dict[str, str]]:
    """Return the hashes of each file, with the folder of the installation that lists it.

    `pip install --target` leaves the RECORD of the previous version; a file may match either.
    """
    found: dict[str, dict[str, str]] = {}
    for folder, text in records:
        for row in csv.reader(text.splitlines()):
            if len(row) > 1 and row[1].startswith(STRONG):
                found.setdefault(os.path.normpath(os.path.join(folder, row[0])), {})[row[1]] = folder
    return found


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

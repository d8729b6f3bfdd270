"""Finds what the hashes of a RECORD do not cover: files that it does not list, and compiled Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from hami.packages import distributions

from hami_tools.packages.installation import Copy, record_of

_COMPILED = Path(__file__).with_name("compiled_files.py")
# Files that installers may write into .dist-info without listing them.
_OF_INSTALLERS = {"INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json"}


def without_hash(copy: Copy) -> list[str]:
    """Return the files that RECORD lists without a hash, except itself and compiled Python."""
    return [name for name, found in copy.recorded.items() if not found and not _needs_none(name)]


def unlisted(copy: Copy) -> list[str]:
    """Return the files in the top-level folders of a distribution that neither it nor another one lists."""
    tops = {name.partition("/")[0] for name in copy.recorded if "/" in name and not name.startswith(("/", ".."))}
    known = {name for name in copy.recorded if not _is_compiled(name)}
    found = [name for name in _files_in(copy.folder, tops) if name not in known and not _is_cached(name, copy.recorded)]
    if not found:
        return []
    others = _listed_by_others(copy)
    return [name for name in found if name not in others]


def changed_bytecode(copy: Copy) -> list[str]:
    """Return the compiled files that Python would run and that are not what their sources compile to."""
    sources = [os.path.join(copy.folder, name) for name in copy.files if name.endswith(".py")]
    command = [sys.executable, "-I", str(_COMPILED)]
    done = subprocess.run(command, input=json.dumps(sources), capture_output=True, text=True, check=False)
    if done.returncode:  # a damaged file can end the process that reads it
        return [os.path.join("__pycache__", "*.pyc")] if sources else []
    return [os.path.relpath(file, copy.folder) for file in json.loads(done.stdout)]


def _needs_none(name: str) -> bool:
    return name.endswith((".dist-info/RECORD", ".dist-info/RECORD.jws")) or _is_compiled(name)


def _is_compiled(name: str) -> bool:
    return name.endswith(".pyc") and "__pycache__" in name.split("/")


def _is_cached(name: str, recorded: Iterable[str]) -> bool:
    """Return whether Python or an installer writes such a file by itself."""
    folder, _, file = name.rpartition("/")
    if folder.endswith(".dist-info"):
        return file in _OF_INSTALLERS
    return _is_compiled(name)  # without a source beside the folder, Python never reads it


def _files_in(folder: str, tops: Iterable[str]) -> Iterator[str]:
    for top in sorted(tops):
        for place, folders, files in os.walk(os.path.join(folder, top)):
            links = [name for name in folders if os.path.islink(os.path.join(place, name))]
            for name in (*files, *links):
                yield os.path.relpath(os.path.join(place, name), folder)


def _listed_by_others(copy: Copy) -> set[str]:
    found = set()
    for distribution in distributions(path=[copy.folder]):
        if distribution.metadata["Name"] != copy.name:
            found |= {name for name, its_hash in record_of(distribution) if its_hash}
    return found

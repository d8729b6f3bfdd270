"""Keeps findings about model files in the cache folder of the user, by the hash of their content or by their stamp.

    finding = recall(["detector.onnx"], engine="onnxruntime 1.32.0")
    if finding is None:
        remember(["detector.onnx"], find_out(), engine="onnxruntime 1.32.0")

The hash is for findings that take longer than reading the files; the stamp costs nothing. An entry is a small file.
Without a cache folder that can be written, entries last as long as the process. An entry that is damaged is ignored.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

FORMAT = 1  # raise it when entries change their meaning
MOST_ENTRIES = 4000  # about 1 KiB each; the oldest half is deleted above it
_SETTLED_NS = 2_000_000_000  # a file changed less than 2 s ago could change again within one tick of its clock
_BLOCK = 1 << 20

_in_memory: dict[str, dict[str, Any]] = {}


def finding_key(files: Sequence[str | os.PathLike[str]], *, engine: str, settings: object = None) -> str:
    """Return the key of a finding about a model, for which its files are read.

    Args:
        files: all files of the model; their content counts, not their names.
        engine: name and version of the engine that runs it: another version may compute in another way.
        settings: what else changes the answer, such as the axes that the user names; shown by repr.

    Raises:
        OSError: a file cannot be read.
    """
    hashes = [_hash_of_file(os.fspath(file)) for file in files]
    return _digest([FORMAT, stamp_of_package(__file__), engine, repr(settings), hashes])


def stamp_key(files: Sequence[str | os.PathLike[str]], *, engine: str, settings: object = None) -> str | None:
    """Return a key for the same that needs no content, from path, size and times of the files.

    None: a file has changed so recently that it could change again without another time.
    """
    stamps = []
    for file in files:
        status = os.stat(file)
        changed = max(status.st_mtime_ns, status.st_ctime_ns)
        if time.time_ns() - changed < _SETTLED_NS:
            return None
        stamps.append(
            [os.path.realpath(file), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, changed]
        )
    return f"stamp-{_digest([FORMAT, stamp_of_package(__file__), engine, repr(settings), stamps])}"


def load_finding(key: str) -> dict[str, Any] | None:
    """Return the entry of a key, or None."""
    found = _in_memory.get(key)
    if found is None and (folder := cache_folder()) is not None:
        found = _read(folder / f"{key}.json")
        if found is not None:
            _in_memory[key] = found
    return found


def save_finding(key: str, finding: dict[str, Any]) -> dict[str, Any]:
    """Keep an entry, which must be made of what JSON has, and return it."""
    _in_memory[key] = finding
    if (folder := cache_folder()) is not None:
        _write(folder / f"{key}.json", finding)
    return finding


def recall(
    files: Sequence[str | os.PathLike[str]],
    *,
    engine: str,
    settings: object = None,
    reads: bool = True,
    accepts: Callable[[dict[str, Any]], bool] = lambda finding: True,
) -> dict[str, Any] | None:
    """Return what `remember` kept for the same files, under any name, or None.

    Args:
        files, engine, settings: as in finding_key; without files there is nothing.
        reads: whether files may be read, which takes longer than looking at their stamps.
        accepts: whether an entry is what the caller needs.
    """
    quick = stamp_key(files, engine=engine, settings=settings) if files else None
    found = load_finding(quick) if quick else None
    if found is not None and accepts(found):
        return found
    found = load_finding(finding_key(files, engine=engine, settings=settings)) if files and reads else None
    if found is None or not accepts(found):
        return None
    if quick:
        save_finding(quick, found)
    return found


def remember(
    files: Sequence[str | os.PathLike[str]],
    finding: dict[str, Any],
    *,
    engine: str,
    settings: object = None,
    reads: bool = True,
) -> None:
    """Keep a finding for files by their stamps and, if they may be read, by their content."""
    if files and reads:
        save_finding(finding_key(files, engine=engine, settings=settings), finding)
    if files and (quick := stamp_key(files, engine=engine, settings=settings)):
        save_finding(quick, finding)


def cache_folder() -> Path | None:
    """Return `hami/findings` in the cache folder of the user, or None if the user has none."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base, "hami", "findings")
    home = os.path.expanduser("~")
    return Path(home, ".cache", "hami", "findings") if os.path.isabs(home) and home != "/" else None


def _hash_of_file(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


@functools.cache
def stamp_of_package(file: str) -> str:
    """Return what changes when a package is updated, for `settings`: entries of other rules must not be used.

    Args:
        file: `__file__` of a module in the outermost folder of the package.
    """
    sources = [(str(source), source.stat()) for source in Path(file).parent.rglob("*.py")]
    return _digest(sorted((name, status.st_size, status.st_mtime_ns) for name, status in sources))


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, default=str).encode("utf-8", "backslashreplace")).hexdigest()


def _read(path: Path) -> dict[str, Any] | None:
    try:
        entry = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or entry.get("format") != FORMAT or not isinstance(entry.get("finding"), dict):
        return None
    found: dict[str, Any] = entry["finding"]
    return found


def _write(path: Path, finding: dict[str, Any]) -> None:
    """Write a file that other processes see whole or not at all; without a folder that can be written, do nothing."""
    from hami.packages import make_private

    with contextlib.suppress(OSError):
        make_private(path.parent)  # others could write findings that are believed
        _delete_oldest(path.parent)
        handle, temporary = tempfile.mkstemp(prefix=".writing-", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump({"format": FORMAT, "finding": finding}, file)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def _delete_oldest(folder: Path) -> None:
    entries = [entry for entry in os.scandir(folder) if entry.name.endswith(".json")]
    if len(entries) < MOST_ENTRIES:
        return
    entries.sort(key=lambda entry: entry.stat().st_mtime_ns)
    for entry in entries[: MOST_ENTRIES // 2]:
        with contextlib.suppress(OSError):
            os.unlink(entry.path)

"""Packed files: several models in one file, with a manifest that `unzip -p FILE manifest.json` prints.

A packed file is a ZIP archive without compression: manifest.json, and one member per model.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import hami
from hami.packages import make_private

from hami_accel import cache

FORMAT, VERSION = "hami-accel", 1
MANIFEST = "manifest.json"
_START = b"PK\x03\x04"  # of every ZIP archive with members
_NAME_AT = 30  # where the name of the first member begins
_EPOCH = (1980, 1, 1, 0, 0, 0)  # equal models give equal files


class PackedModel(NamedTuple):
    """The selected model of a packed file."""

    path: str  # of its own file, in the cache
    names: list[str]  # of all models
    selected: int
    max_time_per_fc: float
    shapes: dict[str, list[int]]
    layouts: dict[str, str]


def is_packed(source: object) -> bool:
    """Return whether a source is the path of a packed file, whole or truncated: a ZIP archive with a manifest."""
    if not isinstance(source, (str, os.PathLike)):
        return False
    if not os.path.isfile(source):  # opening a FIFO would wait
        return False
    with contextlib.suppress(Exception), open(source, "rb") as file:  # zipfile raises many kinds for a damaged archive
        head = file.read(_NAME_AT + len(MANIFEST))
        if not head.startswith(_START):
            return False
        return head[_NAME_AT:] == MANIFEST.encode() or MANIFEST in zipfile.ZipFile(file).namelist()
    return False


def write_packed(path: str | os.PathLike[str], models: Sequence[tuple[Mapping[str, Any], bytes]]) -> None:
    """Write models, each with its entry of the manifest, which has at least a name."""
    entries = [
        {**entry, "file": f"{number}.onnx", "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        for number, (entry, data) in enumerate(models)
    ]
    manifest = json.dumps({"format": FORMAT, "version": VERSION, "models": entries}, indent=2) + "\n"
    if os.path.exists(path) and not os.path.isfile(path):  # a device, which a file would take the place of
        raise hami.ConfigError(f'"{os.fspath(path)}" cannot be written: it is not a regular file')
    file = os.path.realpath(path)
    part = os.path.join(os.path.dirname(file), f".{secrets.token_hex(8)}.part")
    try:
        with zipfile.ZipFile(part, "x", zipfile.ZIP_STORED) as archive:
            archive.writestr(zipfile.ZipInfo(MANIFEST, _EPOCH), manifest)
            for entry, (_, data) in zip(entries, models, strict=True):
                archive.writestr(zipfile.ZipInfo(entry["file"], _EPOCH), data)
        with contextlib.suppress(FileNotFoundError):
            shutil.copymode(file, part)
        os.replace(part, file)
    except OSError as error:
        raise hami.ConfigError(
            f'"{os.fspath(path)}" cannot be written: {error.strerror}; give the name of a file that can be written'
        ) from error
    finally:
        with contextlib.suppress(OSError):
            os.remove(part)


def read_manifest(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the manifest of a packed file. Raises hami.ConfigError if the file is damaged or of a later version."""
    with _archive(path) as archive:
        return _manifest(archive, path)


def open_packed(path: str | os.PathLike[str], select: int | str) -> PackedModel:
    """Return the selected model, unpacked into the cache under the hash of its content.

    Raises hami.ConfigError if the file is damaged or of a later version, or has no such model.
    """
    with _archive(path) as archive:
        entries = [_checked(entry) for entry in _manifest(archive, path)["models"]]
        names = [entry["name"] for entry in entries]
        index = names.index(select) if isinstance(select, str) and select in names else select
        if not isinstance(index, int) or not 0 <= index < len(names):
            raise hami.ConfigError(
                f'"{os.fspath(path)}": select must be 0 to {len(names) - 1} or one of {names}, got {select!r}'
            )
        entry = entries[index]
        data = archive.read(entry["file"])
        shapes = {str(name): [int(size) for size in shape] for name, shape in entry.get("shapes", {}).items()}
        layouts = {str(name): str(layout) for name, layout in entry.get("layouts", {}).items()}
        if not all(layout.isprintable() for layout in layouts.values()):
            raise ValueError(f"a layout has control characters: {layouts!r}")
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise _damaged(path, f'the content of "{names[index]}" differs from its hash')
    return PackedModel(
        _unpacked(entry["sha256"], data),
        names,
        index,
        float(entry.get("max_time_per_fc", 0)),
        shapes,
        layouts,
    )


@contextlib.contextmanager
def _archive(path: str | os.PathLike[str]) -> Any:
    try:
        with zipfile.ZipFile(path) as archive:
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise _damaged(path, "its members are compressed")
            yield archive
    except hami.ConfigError:
        raise
    except OSError as error:
        raise hami.ConfigError(f'"{os.fspath(path)}" cannot be read: {error.strerror}') from error
    except (
        Exception
    ) as error:  # zipfile and json raise many kinds: BadZipFile, RuntimeError, struct.error, RecursionError
        raise _damaged(path, f"{type(error).__name__}: {error}") from error


def _manifest(archive: zipfile.ZipFile, path: str | os.PathLike[str]) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(archive.read(MANIFEST))
    models = manifest.get("models")
    if manifest.get("format") != FORMAT or not isinstance(models, list) or not models:
        raise _damaged(path, f"{MANIFEST} does not describe models")
    if not isinstance(manifest["version"], int):
        raise _damaged(path, f"its version is {manifest['version']!r}, which is not a number")
    if manifest["version"] > VERSION:
        raise hami.ConfigError(
            f'"{os.fspath(path)}" has version {manifest["version"]} of the packed format, but this hami-accel '
            f"reads up to version {VERSION}: install a newer hami-accel, or compile the models again"
        )
    return manifest


def _checked(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry of the manifest. Raises TypeError or ValueError if a value is not of the kind that it must be."""
    for key in ("name", "file", "sha256"):
        if not isinstance(entry[key], str):
            raise TypeError(f'"{key}" of a model is {type(entry[key]).__name__}, not text')
    if not entry["name"].isprintable():  # summaries and messages show it
        raise ValueError(f"the name of a model has control characters: {entry['name']!r}")
    limit = entry.get("max_time_per_fc", 0)
    if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 0 <= limit <= sys.float_info.max:
        raise ValueError(f'"max_time_per_fc" of a model is {limit!r}, which is not a number of microseconds')
    return entry


def _damaged(path: str | os.PathLike[str], reason: str) -> hami.ConfigError:
    return hami.ConfigError(f'"{os.fspath(path)}" is truncated or is not a packed model file: {reason}')


def _unpacked(digest: str, data: bytes) -> str:
    """Return the path of a file with this content in the cache, or in a temporary folder if there is no cache."""
    try:
        folder = cache.folder()
        make_private(folder)
        return _written(folder, digest, data)
    except OSError:
        try:
            return _written(Path(tempfile.mkdtemp(prefix="hami-accel-")), digest, data)
        except OSError as error:
            raise hami.ConfigError(
                f"a packed model of {len(data)} bytes cannot be written to the cache or to {tempfile.gettempdir()}: "
                f"{error.strerror}; free some space, or set HAMI_ACCEL_CACHE to another folder"
            ) from error


def _written(folder: Path, digest: str, data: bytes) -> str:
    target = folder / f"{digest}.onnx"
    if not _has(target, digest):
        cache.replace(target, data)
    return str(target)


def _has(file: Path, digest: str) -> bool:
    """Return whether a file has this content: a machine that stopped may have left one with other bytes."""
    if not file.is_file():
        return False
    return hashlib.sha256(file.read_bytes()).hexdigest() == digest

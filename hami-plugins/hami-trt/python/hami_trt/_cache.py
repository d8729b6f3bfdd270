"""Finds the engine of a recipe on disk, or builds it: once, however many processes ask for it.

An engine X.trt has a sidecar file X.trt.json with its recipe, its size and its hash. Each of the two is written under a
temporary name and then renamed, the engine first. An interrupted build therefore leaves no valid sidecar, and an engine
without one is built again.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import logging
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import filelock
import hami

from hami_trt._atomic_write import write_atomically
from hami_trt._recipe import Recipe, describe_differences, recipe_key

_log = logging.getLogger("hami.trt")
ENGINE_SUFFIXES = (".trt", ".engine", ".plan")
_KEY_LENGTH = 16  # hexadecimal digits of a recipe's key in a file name


class StoredEngine(NamedTuple):
    """A serialized engine, its recipe (None if another program built it), and other content of its sidecar."""

    blob: bytes
    recipe: Recipe | None
    facts: dict[str, Any]


def path_in_cache(cache: Path, model: Path, recipe: Recipe) -> Path:
    """Return the path of an engine: `cache` itself if it names a file, else a file in the folder `cache`.

    The file name has the name of the model and the key of the recipe.
    """
    if cache.suffix in ENGINE_SUFFIXES and not cache.is_dir():
        return cache
    return cache / f"{model.stem}-{recipe_key(recipe)[:_KEY_LENGTH]}.trt"


def find_or_build(
    path: Path, recipe: Recipe, build: Callable[[], StoredEngine], owner: str
) -> tuple[StoredEngine, bool]:
    """Return the engine at `path` if it has this recipe. Otherwise build it and write it there.

    Returns:
        The engine, and whether it was built.
    """
    found = _read_matching(path, recipe)
    if found is not None:
        return found, False
    with _locked(path, owner):
        found = _read_matching(path, recipe)  # another process may have built it before this one got the lock
        if found is not None:
            return found, False
        if path.exists():
            _log.warning('%s: "%s" is built again: %s', owner, path, reason_to_rebuild(path, recipe))
        for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
            with contextlib.suppress(OSError):  # in a shared folder it may belong to another user
                part.unlink()  # left by an interrupted build
        built = build()
        with _as_config_error(path, owner):
            write(path, built)
        return built, True


def write(path: Path, built: StoredEngine) -> None:
    """Write an engine, then the sidecar that makes it valid."""
    content = {
        "engine": {"size": len(built.blob), "sha256": hashlib.sha256(built.blob).hexdigest()},
        "key": recipe_key(built.recipe or {}),
        "recipe": built.recipe,
        **built.facts,
    }
    sidecar_path(path).unlink(missing_ok=True)
    write_atomically(path, built.blob)
    write_atomically(sidecar_path(path), (json.dumps(content, indent=2) + "\n").encode())


def read(path: Path) -> StoredEngine:
    """Return an engine and the content of its sidecar.

    Raises:
        ValueError: the engine does not match its sidecar.
    """
    before = _stamp(sidecar_path(path))
    try:
        return _read(path)
    except ValueError:
        if _stamp(sidecar_path(path)) == before:
            raise
    return _read(path)  # another process replaced both files meanwhile


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _read(path: Path) -> StoredEngine:
    blob = path.read_bytes()
    sidecar = sidecar_path(path)
    if not sidecar.is_file():
        return StoredEngine(blob, None, {})
    try:
        content = json.loads(sidecar.read_text("utf-8"))
        engine, recipe = content["engine"], dict(content["recipe"])
        size, digest = engine["size"], engine["sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f'its sidecar "{sidecar.name}" cannot be read: {error!r}') from error
    if len(blob) != size:
        raise ValueError(f'it has {len(blob)} bytes, but "{sidecar.name}" says {size}: it is truncated or another file')
    if hashlib.sha256(blob).hexdigest() != digest:
        raise ValueError(f'its content does not match "{sidecar.name}": it is damaged or another file')
    return StoredEngine(
        blob, recipe, {name: content[name] for name in content if name not in ("engine", "key", "recipe")}
    )


def sidecar_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def reason_to_rebuild(path: Path, recipe: Recipe) -> str | None:
    """Return why the engine at `path` cannot be used for a recipe; None if it can be used."""
    try:
        stored = read(path)
    except (OSError, ValueError) as error:
        return str(error)
    if stored.recipe is None:
        return f'it has no sidecar "{sidecar_path(path).name}" with its recipe'
    return describe_differences(recipe, stored.recipe) or None


def _read_matching(path: Path, recipe: Recipe) -> StoredEngine | None:
    try:
        stored = read(path)
    except (OSError, ValueError):
        return None
    return stored if stored.recipe == recipe else None


@contextlib.contextmanager
def _locked(path: Path, owner: str) -> Iterator[None]:
    """Hold the lock of an engine. The system releases it when the process ends, also when it is killed."""
    with _as_config_error(path, owner):
        if path.parent.exists() and not path.parent.is_dir():
            raise NotADirectoryError(f'"{path.parent}" is not a folder')
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(f'"{path}" is a folder')
        lock = filelock.FileLock(f"{path}.lock", mode=0o666)  # other users may share the folder
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            _log.info('%s: another process is building "%s"; waiting for it', owner, path)
            lock.acquire()
    try:
        with _as_config_error(path, owner), tempfile.TemporaryFile(dir=path.parent):
            pass  # a folder that cannot be written fails here, not after minutes of building
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _as_config_error(path: Path, owner: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise hami.ConfigError(
            f'{owner}: cannot write the engine to "{path}" ("model::cache"): {error.strerror or error}; '
            "name a file or a folder that this process can write"
        ) from error

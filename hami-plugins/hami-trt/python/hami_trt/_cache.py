"""Finds the engine of a recipe or builds it, once however many ask; what was not written whole is not read.

An engine X.trt has a file X.trt.json beside it, with its recipe, its size and its hash. The engine is written first and
that file last, each under another name until it is complete: a build that was interrupted leaves nothing that counts.
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

from hami_trt._files import replace
from hami_trt._recipe import Recipe, differences, key_of

_log = logging.getLogger("hami.trt")
ENGINE_SUFFIXES = (".trt", ".engine", ".plan")


class Stored(NamedTuple):
    """An engine and what is known of it: its recipe (None: made elsewhere), and facts for readers."""

    blob: bytes
    recipe: Recipe | None
    facts: dict[str, Any]


def place_of(cache: Path, model: Path, recipe: Recipe) -> Path:
    """Return the file of the engine: the one that was named, or, in a folder, one named after model and recipe."""
    if cache.suffix in ENGINE_SUFFIXES and not cache.is_dir():
        return cache
    return cache / f"{model.stem}-{key_of(recipe)[:16]}.trt"


def find_or_build(path: Path, recipe: Recipe, build: Callable[[], Stored], owner: str) -> tuple[Stored, bool]:
    """Return the engine at `path` if it is of this recipe; else build it, keep it there, and say so by True."""
    found = _matching(path, recipe)
    if found is not None:
        return found, False
    with _locked(path, owner):
        found = _matching(path, recipe)  # another process was faster
        if found is not None:
            return found, False
        if path.exists():
            _log.warning('%s: "%s" is built anew: %s', owner, path, why_not(path, recipe))
        for rest in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
            with contextlib.suppress(OSError):  # it may be another's, in a folder that is shared
                rest.unlink()  # of a build that was interrupted
        built = build()
        with _explained(path, owner):
            write(path, built)
        return built, True


def write(path: Path, built: Stored) -> None:
    """Keep an engine: first itself, then the file that vouches for it."""
    told = {
        "engine": {"size": len(built.blob), "sha256": hashlib.sha256(built.blob).hexdigest()},
        "key": key_of(built.recipe or {}),
        "recipe": built.recipe,
        **built.facts,
    }
    sidecar_of(path).unlink(missing_ok=True)
    replace(path, built.blob)
    replace(sidecar_of(path), (json.dumps(told, indent=2) + "\n").encode())


def read(path: Path) -> Stored:
    """Return an engine and what is written of it. ValueError: it is not what the file beside it says."""
    before = _stamp(sidecar_of(path))
    try:
        return _read(path)
    except ValueError:
        if _stamp(sidecar_of(path)) == before:
            raise
    return _read(path)  # another process replaced both meanwhile


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _read(path: Path) -> Stored:
    blob = path.read_bytes()
    sidecar = sidecar_of(path)
    if not sidecar.is_file():
        return Stored(blob, None, {})
    try:
        told = json.loads(sidecar.read_text("utf-8"))
        engine, recipe = told["engine"], dict(told["recipe"])
        size, digest = engine["size"], engine["sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f'"{sidecar.name}" beside it is not readable: {error!r}') from error
    if len(blob) != size:
        raise ValueError(f'it has {len(blob)} bytes, "{sidecar.name}" says {size}: truncated, or another file')
    if hashlib.sha256(blob).hexdigest() != digest:
        raise ValueError(f'its content is not what "{sidecar.name}" says: damaged, or another file')
    return Stored(blob, recipe, {name: told[name] for name in told if name not in ("engine", "key", "recipe")})


def sidecar_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def why_not(path: Path, recipe: Recipe) -> str | None:
    """Say why the engine there is not taken; None if it is of this recipe."""
    try:
        stored = read(path)
    except (OSError, ValueError) as error:
        return str(error)
    if stored.recipe is None:
        return f'there is no "{sidecar_of(path).name}" beside it that says what it was made of'
    return differences(recipe, stored.recipe) or None


def _matching(path: Path, recipe: Recipe) -> Stored | None:
    try:
        stored = read(path)
    except (OSError, ValueError):
        return None
    return stored if stored.recipe == recipe else None


@contextlib.contextmanager
def _locked(path: Path, owner: str) -> Iterator[None]:
    """Hold the lock of an engine. The system lets go of it with the process that held it, however that ended."""
    with _explained(path, owner):
        if path.parent.exists() and not path.parent.is_dir():
            raise NotADirectoryError(f'"{path.parent}" is no folder')
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(f'"{path}" is a folder')
        lock = filelock.FileLock(f"{path}.lock", mode=0o666)  # others may share the folder
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            _log.info('%s: another process builds "%s"; waiting for it', owner, path)
            lock.acquire()
    try:
        with _explained(path, owner), tempfile.TemporaryFile(dir=path.parent):
            pass  # better to know before minutes of building that nothing can be written there
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _explained(path: Path, owner: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise hami.ConfigError(
            f'{owner}: the engine cannot be kept as "{path}" ("model::cache"): {error.strerror or error}; '
            "name a file or a folder that this process may write"
        ) from error

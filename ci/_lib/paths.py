"""Paths: the checkout, its cache, and the folder of finished wheels."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hami_build import cache

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("HAMI_CACHE") or ROOT / ".cache").resolve()
DIST = ROOT / "dist"
cache.use(CACHE)
LOGS = CACHE / "logs"
REQUIREMENTS = ROOT / "ci" / "requirements"
PACKAGING = ROOT / "hami-plugins" / "hami-build" / "python" / "hami_build"  # used from the sources

# Written by tools, never an input of a build.
NOT_SOURCE_FOLDERS = {"__pycache__", ".pytest_cache", ".ruff_cache", ".mypy_cache", "build", "dist"}
NOT_SOURCE_SUFFIXES = {".pyc", ".so", ".egg-info"}


def source_files(paths: Iterable[Path]) -> list[Path]:
    """Return every source file in `paths`, sorted; paths that do not exist are ignored."""
    found = set()
    for path in paths:
        if path.is_file():
            found.add(path)
            continue
        for folder, names, files in os.walk(path):
            names[:] = [n for n in names if n not in NOT_SOURCE_FOLDERS and not n.endswith(".egg-info")]
            found.update(Path(folder, file) for file in files if Path(file).suffix not in NOT_SOURCE_SUFFIXES)
    return sorted(found)


def content_key(paths: Iterable[Path], *extra: str) -> str:
    """Return a short name that changes with every change of a file in `paths` or of `extra`."""
    digest = hashlib.sha256()
    for text in extra:
        digest.update(text.encode() + b"\0")
    for path in source_files(paths):
        name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        digest.update(str(name).encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def pinned(package: str) -> str:
    """Return the version of `package` in ci/requirements/backend.txt."""
    lines = (REQUIREMENTS / "backend.txt").read_text("utf-8").splitlines()
    return next(line.removeprefix(f"{package}==") for line in lines if line.startswith(f"{package}=="))


def pyproject(folder: Path) -> dict[str, Any]:
    """Return the contents of the pyproject.toml in `folder`."""
    return read_toml(folder / "pyproject.toml")


def read_toml(file: Path) -> dict[str, Any]:
    try:
        import tomllib
    except ModuleNotFoundError:  # before Python 3.11, in an environment of ours
        import tomli as tomllib
    table: dict[str, Any] = tomllib.loads(file.read_text("utf-8"))
    return table

"""Paths: the checkout, its cache, and the folder of finished wheels."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hami_build import cache, sdist

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("HAMI_CACHE") or ROOT / ".cache").resolve()
DIST = ROOT / "dist"
cache.use(CACHE)
REQUIREMENTS = ROOT / "ci" / "requirements"
SHARED_CCACHE = {"CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "1"}  # between checkouts
PACKAGING = ROOT / "hami-plugins" / "hami-build" / "python" / "hami_build"  # used from the sources


def content_key(paths: Iterable[Path], *extra: str) -> str:
    """Return a short name that changes with every change of a source in `paths` or of `extra`."""
    digest = hashlib.sha256("\0".join(extra).encode())
    files = {file for path in paths for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file()}
    for file in sorted(files):
        name = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
        if not sdist.ignored(name):
            digest.update(f"\0{name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}".encode())
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

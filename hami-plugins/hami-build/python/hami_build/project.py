"""Reads the project of a plugin: its pyproject.toml, its packages, and its folder in the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hami_build import cache
from hami_build.errors import Failure

NATIVE_BACKEND = "scikit_build_core.build"
# Written by tools, never an input of a build.
NOT_SOURCE = ("__pycache__", ".*_cache", ".git", ".cache", "build", "dist", "*.pyc", "*.so", "*.egg-info")


@dataclass(frozen=True)
class Project:
    """A folder with a pyproject.toml."""

    folder: Path
    table: Mapping[str, Any]  # the contents of pyproject.toml

    @property
    def name(self) -> str:
        return str(self.table["project"]["name"])

    @property
    def version(self) -> str:
        """The version; "0" if the build backend finds it out."""
        return str(self.table["project"].get("version", "0"))

    @property
    def backend(self) -> str:
        return str(self.table["build-system"]["build-backend"])

    @property
    def requires(self) -> list[str]:
        """What its build requires."""
        return list(map(str, self.table["build-system"].get("requires", ())))

    @property
    def is_native(self) -> bool:
        """Whether it is compiled."""
        return self.backend == NATIVE_BACKEND

    @property
    def serves_every_python(self) -> bool:
        """Whether one wheel of it is for several Pythons: it is not compiled, or not for the ABI of one Python."""
        wheel = self.table.get("tool", {}).get("scikit-build", {}).get("wheel", {})
        return not self.is_native or bool(wheel.get("py-api"))

    @property
    def module(self) -> str:
        """The name of its Python package."""
        return self.name.replace("-", "_")

    @property
    def packages(self) -> dict[str, Path]:
        """The Python packages of a native project by name, as [tool.scikit-build] names them or by default."""
        named = self.table.get("tool", {}).get("scikit-build", {}).get("wheel", {}).get("packages")
        usual = [f"{parent}/{self.module}" for parent in ("src", "python", ".")]
        folders = [self.folder / each for each in (named if isinstance(named, list) else usual)]
        return {folder.name: folder for folder in folders if folder.is_dir()}

    @property
    def cached(self) -> Path:
        """The folder of the cache for its builds."""
        return cache.folder() / "projects" / hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:12]


def read(folder: Path) -> Project:
    """Return the project in a folder; raises Failure if the folder has no pyproject.toml, or if it is not valid."""
    try:
        import tomllib
    except ModuleNotFoundError:  # before Python 3.11
        import tomli as tomllib
    file = folder / "pyproject.toml"
    if not file.is_file():
        raise Failure(
            f"{folder} contains no pyproject.toml; give the folder of a project, as hami new-plugin writes it"
        )
    try:
        table: dict[str, Any] = tomllib.loads(file.read_text("utf-8"))
    except (ValueError, RecursionError) as error:  # also of the encoding
        raise Failure(f"{file} is not valid TOML: {error}") from error
    if "build-backend" not in table.get("build-system", {}) or "name" not in table.get("project", {}):
        raise Failure(f"{file} must name a build-backend in [build-system], and the project in [project]")
    return Project(folder, table)

"""Wheels of the installed hami-core, and of the plugins in this folder, built by pip."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import hami
import pytest
from temporary_environment import TemporaryEnvironment, repack

HERE = Path(__file__).parent
VERSIONS = HERE.parent / "abi" / "plugins" / "versions.c"
INCLUDE = Path(hami.native.get_include())


def compiler() -> list[str]:
    if zig := os.environ.get("HAMI_ZIG"):
        return [zig, "cc"]
    return ["cc"] if shutil.which("cc") else pytest.skip("cc is not installed (Debian, Ubuntu: apt install gcc)")


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with wheels of hami-core, two plugins, pytest and their requirements, without downloads."""
    if not INCLUDE.is_dir():
        pytest.skip("hami is not installed from a wheel here")
    folder = tmp_path_factory.mktemp("wheels")
    ours = ("hami-core", "hami-build", "hami-tensor", "hami-tools")
    for name in (*ours, "pytest", *(["numpy"] if find_spec("numpy") else [])):
        repack(name, folder)
    return folder


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the plugins that have a native library, with the library built."""
    folder = tmp_path_factory.mktemp("native")
    for name, major, minor in (("acme-major", 2, 0), ("acme-minor", 1, 4)):
        project = folder / name
        shutil.copytree(HERE / name, project)
        module = name.replace("-", "_")
        macros = [f"-DMAJOR={major}", f"-DMINOR={minor}", f"-DNEEDS={minor}"]
        output = ["-std=c99", "-fPIC", "-shared", "-o", str(project / module / f"{module}.so")]
        subprocess.run([*compiler(), *macros, f"-I{INCLUDE}", *output, str(VERSIONS)], check=True)
    return folder


@pytest.fixture(scope="session")
def builder(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> TemporaryEnvironment:
    """Return an environment with the build backend of the plugins, from the package index."""
    folder = tmp_path_factory.mktemp("builder")
    environment = TemporaryEnvironment(folder / "env", wheels, folder)
    environment.pip("install", "hatchling")
    return environment


@pytest.fixture
def environment(tmp_path: Path, wheels: Path) -> TemporaryEnvironment:
    environment = TemporaryEnvironment(tmp_path / "env", wheels, tmp_path)
    environment.pip("install", "--no-index", "hami-core")
    return environment

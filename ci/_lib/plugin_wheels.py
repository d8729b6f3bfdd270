"""Builds the wheels of plugins, each from its own folder: py3-none-any, or native with the compiler of the core."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from hami_build import platforms as platforms_of_wheels
from hami_build import wheels, zig
from hami_build.steps import Failure

from . import core_wheel
from .paths import CACHE, PACKAGING, REQUIREMENTS, ROOT, content_key, pyproject

PLUGINS = ROOT / "hami-plugins"
CMAKE_PACKAGE = ROOT / "hami-core" / "cmake"
INPUTS = [
    ROOT / "ci" / "_lib" / "plugin_wheels.py",
    *(
        PACKAGING / name
        for name in ("pep517.py", "platforms.py", "project.py", "sbom.py", "wheel_file.py", "wheels.py")
    ),
    REQUIREMENTS / "backend.txt",
]
# Inputs of a native plugin, in addition to its own folder.
NATIVE_INPUTS = [
    CMAKE_PACKAGE,
    ROOT / "hami-core" / "include",
    PACKAGING / "zig.cmake",
    REQUIREMENTS / "tools.txt",
]
PURE = "any"


def folders(asked: list[str] | None = None) -> list[Path]:
    """Return the folders of all plugins, or of the plugins that `asked` names."""
    found = {path.parent.name: path.parent for path in sorted(PLUGINS.glob("*/pyproject.toml"))}
    for name in asked or ():
        if name not in found:
            raise Failure(f'unknown plugin "{name}"; hami-plugins/ contains {", ".join(found)}')
    return [folder for name, folder in found.items() if not asked or name in asked]


def is_native(plugin: Path) -> bool:
    return bool(pyproject(plugin)["build-system"]["build-backend"] == "scikit_build_core.build")


def platforms(plugin: Path, architectures: Sequence[str]) -> Sequence[str]:
    """Return the platforms of its wheels: those architectures, or any."""
    return architectures if is_native(plugin) else [PURE]


def finished(plugin: Path, platform: str) -> Path:
    """Return the folder of the finished wheel of this plugin, whether or not it exists."""
    inputs = [plugin, *INPUTS, *(NATIVE_INPUTS if platform != PURE else ())]
    return core_wheel.WHEELS / f"{plugin.name.replace('-', '_')}-{content_key(inputs, zig.GLIBC)}-{platform}"


def build(plugin: Path, platform: str) -> Path:
    """Build the wheel of the plugin in folder `plugin`."""
    folder = finished(plugin, platform)
    if not folder.is_dir():
        work = CACHE / "build" / f"{plugin.name}-{platform}-work"
        shutil.rmtree(work, ignore_errors=True)
        aims = [] if platform == PURE else [platforms_of_wheels.parse(f"manylinux2014_{platform}")]
        wheels.build(plugin, aims, work / "finished", cmake_dir=CMAKE_PACKAGE)
        core_wheel.keep(work, folder)
    return next(folder.glob("*.whl"))

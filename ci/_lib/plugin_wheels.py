"""The plugins' wheels, each built from its own folder: py3-none-any, and native ones with the compiler of the core."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from . import core_wheel, zig
from .core_wheel import WHEELS, source_date
from .paths import CACHE, REQUIREMENTS, ROOT, content_key
from .steps import environment, run, step

PLUGINS = ROOT / "hami-plugins"
CMAKE_PACKAGE = ROOT / "hami-core" / "cmake"
# What a native plugin is built with, besides its own folder.
NATIVE_INPUTS = [
    CMAKE_PACKAGE,
    ROOT / "hami-core" / "include",
    ROOT / "ci" / "toolchains",
    *(REQUIREMENTS / name for name in ("tools.txt", "backend.txt")),
]


def folders() -> list[Path]:
    return sorted(path.parent for path in PLUGINS.glob("*/pyproject.toml"))


def is_native(plugin: Path) -> bool:
    return "scikit_build_core" in (plugin / "pyproject.toml").read_text("utf-8")


def finished(plugin: Path) -> Path:
    """Where the finished wheel of this plugin lies, or will."""
    key = content_key([plugin, *NATIVE_INPUTS], zig.TARGET) if is_native(plugin) else content_key([plugin])
    return WHEELS / f"{plugin.name.replace('-', '_')}-{key}"


def build(plugin: Path) -> Path:
    """The wheel of the plugin in folder `plugin`."""
    folder = finished(plugin)
    if not folder.is_dir():
        with step(f"building {plugin.name}"):
            work = CACHE / "build" / f"{plugin.name}-work"
            shutil.rmtree(work, ignore_errors=True)
            # pip may leave build folders in the source; a copy keeps the checkout clean.
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "dist", ".pytest_cache")
            shutil.copytree(plugin, work / "source", ignore=ignored)
            (build_native if is_native(plugin) else build_pure)(plugin, work)
            folder.parent.mkdir(parents=True, exist_ok=True)
            os.replace(work / "out", folder)
            shutil.rmtree(work)
    return next(folder.glob("*.whl"))


def build_pure(plugin: Path, work: Path) -> None:
    """The wheel of work/source in work/out."""
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", work / "out", work / "source"]
    run(command, log=f"wheel-{plugin.name}", env=environment(SOURCE_DATE_EPOCH=source_date([plugin])))


def build_native(plugin: Path, work: Path) -> None:
    """The same, compiled against the headers of this checkout and named manylinux."""
    settings = {
        "cmake.define.CMAKE_TOOLCHAIN_FILE": str(zig.TOOLCHAIN),
        "cmake.define.HAMI_ZIG_TARGET": zig.TARGET,
        "cmake.define.hami_DIR": str(CMAKE_PACKAGE),
    }
    backend = core_wheel.backend_folder()
    zig.warm_up()
    date = source_date([plugin, *NATIVE_INPUTS])
    env = zig.build_environment(PYTHONPATH=str(backend), SOURCE_DATE_EPOCH=date)
    (work / "raw").mkdir()
    command = [sys.executable, "-S", "-c", core_wheel.BUILD_WHEEL, work / "raw", json.dumps(settings)]
    run(command, log=f"wheel-{plugin.name}", env=env, cwd=work / "source")
    core_wheel.retag(next((work / "raw").glob("*.whl")), work / "out", date)

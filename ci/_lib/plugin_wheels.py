"""Builds the wheels of plugins, each from its own folder: py3-none-any, or native with the compiler of the core."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hami_build import sbom, wheel_file

from . import backend, core_wheel, zig
from .paths import CACHE, NOT_SOURCE_FOLDERS, NOT_SOURCE_SUFFIXES, PACKAGING, REQUIREMENTS, ROOT, content_key, pyproject
from .steps import Failure

PLUGINS = ROOT / "hami-plugins"
CMAKE_PACKAGE = ROOT / "hami-core" / "cmake"
INPUTS = [
    *(ROOT / "ci" / "_lib" / name for name in ("backend.py", "plugin_wheels.py")),
    *(PACKAGING / name for name in ("sbom.py", "wheel_file.py")),
    REQUIREMENTS / "backend.txt",
]
# Inputs of a native plugin, in addition to its own folder.
NATIVE_INPUTS = [
    CMAKE_PACKAGE,
    ROOT / "hami-core" / "include",
    ROOT / "ci" / "toolchains",
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
        with copied(plugin, platform) as work:
            if platform == PURE:
                wheel = backend.build("build_wheel", work / "source", work / "raw", f"wheel-{plugin.name}")
                wheel_file.finish(wheel, work / "finished", [PURE])
            else:
                wheel = compile_wheel(plugin.name, platform, work)
                tags = core_wheel.platform_tags(platform)
                wheel_file.finish(wheel, work / "finished", tags, [sbom.cxx_library(zig.cxx_library_version())])
            core_wheel.keep(work, folder)
    return next(folder.glob("*.whl"))


def compile_wheel(name: str, architecture: str, work: Path) -> Path:
    """Build the wheel of work/source against the headers of this checkout."""
    aim = zig.target(architecture)
    settings = {
        "cmake.define.CMAKE_TOOLCHAIN_FILE": str(zig.TOOLCHAIN),
        "cmake.define.HAMI_ZIG_TARGET": aim,
        "cmake.define.hami_DIR": str(CMAKE_PACKAGE),
    }
    env = zig.build_environment(aim)
    if architecture != zig.HOST:
        env["_PYTHON_HOST_PLATFORM"] = f"linux-{architecture}"
    log = f"wheel-{name}-{architecture}"
    return backend.build("build_wheel", work / "source", work / "raw", log, settings=settings, env=env)


@contextmanager
def copied(plugin: Path, platform: str) -> Iterator[Path]:
    """Yield a work folder with a copy of the plugin in source/: build backends write into it."""
    work = CACHE / "build" / f"{plugin.name}-{platform}-work"
    shutil.rmtree(work, ignore_errors=True)
    ignored = shutil.ignore_patterns(*NOT_SOURCE_FOLDERS, *(f"*{suffix}" for suffix in NOT_SOURCE_SUFFIXES))
    shutil.copytree(plugin, work / "source", ignore=ignored)
    yield work

"""Builds the wheels of a project, as they are published: the same sources become the same bytes on every machine."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from hami_build import pep517, sbom, wheel_file, zig
from hami_build.errors import Failure
from hami_build.parallel import in_parallel
from hami_build.platforms import PURE, Platform
from hami_build.project import NATIVE_BACKEND, NOT_SOURCE, Project, read
from hami_build.steps import exclusive, step

HINT = "pip install 'hami-build[wheel]'"


def build(folder: Path, platforms: Sequence[Platform], destination: Path) -> list[Path]:
    """Build the wheel of each platform, or one for any platform if the project is not compiled; return the files.

    Compiled objects are kept in the cache, so that the next build compiles only what changed.

    Raises:
        Failure: The project is not valid, a tool is not installed, or the build failed.
    """
    project = read(folder)
    require(project.backend.partition(".")[0])
    if not project.is_native:
        with step(f"building {project.name}"), sources(project, PURE) as work:
            wheel = pep517.build("build_wheel", project.backend, work / "source", work / "raw", log_of(work))
            return [wheel_file.finish(wheel, destination, [PURE])]
    for tool in ("ziglang", "cmake", "ninja"):
        require(tool)
    for platform in platforms:
        zig.warm_up(platform.target)
    jobs = {platform.tags[0]: partial(build_for, project, platform, destination) for platform in platforms}
    return in_parallel(f"building {project.name}", jobs)


def build_for(project: Project, platform: Platform, destination: Path) -> Path:
    """Build the wheel of a native project for one platform."""
    with sources(project, platform.target) as work:
        wheel = compile_wheel(work, platform, build_folder=work / "build")
        inside = [sbom.cxx_library(zig.cxx_library_version())]
        return wheel_file.finish(wheel, destination, platform.tags, inside)


def require(module: str) -> None:
    """Raise Failure if a module of the build is not installed."""
    if importlib.util.find_spec(module) is None:
        raise Failure(f"{module.replace('_', '-')} is not installed; {HINT}, or the project's own build requirements")


@contextmanager
def sources(project: Project, variant: str) -> Iterator[Path]:
    """Yield a folder of the cache with a copy of the project in source/: build backends write into it."""
    work = project.cached / variant
    with exclusive(f"project-{work.parent.name}-{variant}"):
        for part in ("source", "raw"):
            shutil.rmtree(work / part, ignore_errors=True)
        shutil.copytree(project.folder, work / "source", ignore=shutil.ignore_patterns(*NOT_SOURCE))
        yield work


def compile_wheel(
    work: Path,
    platform: Platform,
    *,
    cmake_dir: Path | None = None,
    backends: Path | None = None,
    build_folder: Path | None = None,
) -> Path:
    """Compile work/source for a platform, against the headers of `cmake_dir`, by default of the installed hami-core."""
    cmake_dir = cmake_dir or installed_cmake_dir()
    settings = {
        "cmake.define.CMAKE_TOOLCHAIN_FILE": str(zig.TOOLCHAIN),
        "cmake.define.HAMI_ZIG_TARGET": platform.target,
        "cmake.define.hami_DIR": str(cmake_dir),
    }
    if build_folder is not None:
        settings["build-dir"] = str(build_folder)
    env = zig.build_environment(platform.target)
    if not platform.is_host:
        env["_PYTHON_HOST_PLATFORM"] = f"linux-{platform.architecture}"
    folders = (work / "source", work / "raw", log_of(work))
    return pep517.build("build_wheel", NATIVE_BACKEND, *folders, backends=backends, settings=settings, env=env)


def installed_cmake_dir() -> Path:
    """Return the folder of hami-config.cmake of the installed hami-core."""
    import hami

    return Path(hami.get_include()).with_name("cmake")


def log_of(work: Path) -> str:
    """Return the name of the log of a build in that folder."""
    return f"wheel-{work.parent.name}-{work.name}"

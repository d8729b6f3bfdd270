"""Builds the wheels of a project, as they are published: the same sources become the same bytes on every machine."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hami_build import cache, pep517, sbom, wheel_file, zig
from hami_build.errors import Failure
from hami_build.platforms import PURE, Platform
from hami_build.steps import exclusive, step

NATIVE_BACKEND = "scikit_build_core.build"
HINT = "pip install 'hami-build[wheel]'"
# Written by tools, never an input of a build.
NOT_SOURCE = ("__pycache__", ".*_cache", ".git", ".cache", "build", "dist", "*.pyc", "*.so", "*.egg-info")


def read_project(project: Path) -> dict[str, Any]:
    """Return the contents of pyproject.toml; raises Failure if the folder has none, or if it is not valid."""
    try:
        import tomllib
    except ModuleNotFoundError:  # before Python 3.11
        import tomli as tomllib
    file = project / "pyproject.toml"
    if not file.is_file():
        raise Failure(
            f"{project} contains no pyproject.toml; give the folder of a project, as hami new-plugin writes it"
        )
    try:
        table: dict[str, Any] = tomllib.loads(file.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise Failure(f"{file} is not valid TOML: {error}") from error
    if "build-backend" not in table.get("build-system", {}) or "name" not in table.get("project", {}):
        raise Failure(f"{file} must name a build-backend in [build-system], and the project in [project]")
    return table


def is_native(project: Path) -> bool:
    """Return whether a project is compiled."""
    return bool(read_project(project)["build-system"]["build-backend"] == NATIVE_BACKEND)


def build(project: Path, platforms: Sequence[Platform], destination: Path) -> list[Path]:
    """Build the wheel of each platform, or one for any platform if the project is not compiled; return the files.

    Compiled objects are kept in the cache, so that the next build compiles only what changed.

    Raises:
        Failure: The project is not valid, a tool is not installed, or the build failed.
    """
    table = read_project(project)
    name, backend = table["project"]["name"], table["build-system"]["build-backend"]
    require(backend.partition(".")[0])
    if backend != NATIVE_BACKEND:
        with step(f"building {name}"), sources(project, PURE) as work:
            wheel = pep517.build("build_wheel", backend, work / "source", work / "raw", log_of(work))
            return [wheel_file.finish(wheel, destination, [PURE])]
    for tool in ("ziglang", "cmake", "ninja"):
        require(tool)
    built = []
    for platform in platforms:
        zig.warm_up(platform.target)
        with step(f"building {name} for {platform.tags[0]}"), sources(project, platform.target) as work:
            wheel = compile_wheel(work, platform, build_folder=work / "build")
            inside = [sbom.cxx_library(zig.cxx_library_version())]
            built.append(wheel_file.finish(wheel, destination, platform.tags, inside))
    return built


def require(module: str) -> None:
    """Raise Failure if a module of the build is not installed."""
    if importlib.util.find_spec(module) is None:
        raise Failure(f"{module.replace('_', '-')} is not installed; {HINT}, or the project's own build requirements")


@contextmanager
def sources(project: Path, variant: str) -> Iterator[Path]:
    """Yield a folder of the cache with a copy of the project in source/: build backends write into it."""
    key = hashlib.sha256(str(project.resolve()).encode()).hexdigest()[:12]
    work = cache.folder() / "projects" / key / variant
    with exclusive(f"project-{key}-{variant}"):
        for part in ("source", "raw"):
            shutil.rmtree(work / part, ignore_errors=True)
        shutil.copytree(project, work / "source", ignore=shutil.ignore_patterns(*NOT_SOURCE))
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
    if cmake_dir is None:
        import hami

        cmake_dir = Path(hami.get_include()).with_name("cmake")
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


def log_of(work: Path) -> str:
    """Return the name of the log of a build in that folder."""
    return f"wheel-{work.parent.name}-{work.name}"

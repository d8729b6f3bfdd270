"""Builds the wheels of a project, as they are published: the same sources become the same bytes on every machine."""

from __future__ import annotations

import importlib.metadata as metadata
import importlib.util
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hami_build import build_requirements, headers, pep517, sbom, sources, wheel_file, zig
from hami_build.errors import Failure
from hami_build.interpreters import Interpreter, required, running
from hami_build.parallel import in_parallel
from hami_build.platforms import PURE, Platform
from hami_build.project import NATIVE_BACKEND, NOT_SOURCE, Project, read
from hami_build.steps import exclusive, step

HINT = "pip install 'hami-build[wheel]'"


def build(
    folder: Path,
    platforms: Sequence[Platform],
    destination: Path,
    pythons: Sequence[Interpreter] = (),
    cmake_dir: Path | None = None,
) -> list[Path]:
    """Build the wheel of each platform, or one for any platform if the project is not compiled; return the files.

    A project with an extension module for the ABI of one Python, as pybind11 makes it, has a wheel for each of
    `pythons`, by default for the running one. Compiled objects are kept in the cache, so that the next build compiles
    only what changed. `cmake_dir` is the folder of hamiConfig.cmake; by default that of the installed hami-core.

    Raises:
        Failure: The project is not valid, a tool is not installed, or the build failed.
    """
    project = read(folder)
    require(project.backend.partition(".")[0])
    if not project.is_native:
        with step(f"building {project.name}"), copied(project, PURE) as work:
            wheel = pep517.build("build_wheel", project.backend, work / "source", work / "raw", log_of(work))
            return [wheel_file.finish(wheel, destination, [PURE])]
    for tool in ("ziglang", "cmake", "ninja"):
        require(tool)
    sources.folder_of(project)
    for platform in platforms:
        zig.warm_up(platform.target)
    variants: Sequence[Interpreter | None] = [None] if project.serves_every_python else pythons or required(["current"])
    jobs = {
        name_of(platform, python): partial(build_for, project, platform, destination, python, cmake_dir)
        for platform in platforms
        for python in variants
    }
    return in_parallel(f"building {project.name}", jobs)


def name_of(platform: Platform, python: Interpreter | None) -> str:
    """Return the name of a wheel in messages and in the cache."""
    return f"{python.tag}-{platform.target}" if python else platform.target


def build_for(
    project: Project,
    platform: Platform,
    destination: Path,
    python: Interpreter | None = None,
    cmake_dir: Path | None = None,
) -> Path:
    """Build the wheel of a native project for one platform, and for one Python if its ABI is needed."""
    with copied(project, name_of(platform, python)) as work:
        lent = build_requirements.linked(project, python, work / "backends") if python and python != running() else None
        wheel = compile_wheel(
            work / "source",
            work / "raw",
            log_of(work),
            platform,
            python=python,
            backends=lent,
            build_folder=work / "build",
            define=cmake_packages(project, cmake_dir),
        )
        inside = [sbom.pybind11(metadata.version("pybind11"))] if uses_pybind11(project) else []
        inside += [*sources.parts(project), sbom.cxx_library(zig.cxx_library_version())]
        return wheel_file.finish(wheel, destination, platform.tags, inside)


def cmake_packages(project: Project, cmake_dir: Path | None = None) -> dict[str, Path]:
    """Return where CMake finds hami-core, the sources of others, and pybind11 if the project is built with it."""
    found = {"hami_DIR": cmake_dir or installed_cmake_dir(), **sources.definitions(project)}
    if uses_pybind11(project):
        require("pybind11")
        installed = metadata.distribution("pybind11")
        found["pybind11_DIR"] = Path(str(installed.locate_file("pybind11/share/cmake/pybind11")))
    return found


def uses_pybind11(project: Project) -> bool:
    """Return whether pybind11 is a build requirement: parts of it are then inside of the binaries."""
    return "pybind11" in {canonicalize_name(Requirement(text).name) for text in project.requires}


def require(module: str) -> None:
    """Raise Failure if a module of the build is not installed."""
    if importlib.util.find_spec(module) is None:
        raise Failure(f"{module.replace('_', '-')} is not installed; {HINT}, or the project's own build requirements")


@contextmanager
def copied(project: Project, variant: str) -> Iterator[Path]:
    """Yield a folder of the cache with a copy of the project in source/: build backends write into it."""
    work = project.cached / variant
    with exclusive(f"project-{work.parent.name}-{variant}"):
        for part in ("source", "raw"):
            shutil.rmtree(work / part, ignore_errors=True)
        shutil.copytree(project.folder, work / "source", ignore=shutil.ignore_patterns(*NOT_SOURCE))
        yield work


def compile_wheel(
    source: Path,
    destination: Path,
    log: str,
    platform: Platform,
    *,
    python: Interpreter | None = None,
    backends: Path | None = None,
    build_folder: Path | None = None,
    define: Mapping[str, object] | None = None,
) -> Path:
    """Compile the project in `source` for a platform and write the raw wheel into the new folder `destination`.

    Args:
        source: The project, whose build backend may write into it.
        destination: A folder that does not exist.
        log: Name of the log.
        platform: The platform.
        python: The Python whose ABI an extension module is for; its headers are used for every platform.
        backends: A folder with the build backends, if this Python or `python` has none.
        build_folder: Where compiled objects are kept.
        define: Further variables of CMake.
    """
    variables = {"CMAKE_TOOLCHAIN_FILE": zig.TOOLCHAIN, "HAMI_ZIG_TARGET": platform.target, **(define or {})}
    env = zig.build_environment(platform.target)
    if not platform.is_host:
        env["_PYTHON_HOST_PLATFORM"] = f"linux-{platform.architecture}"
    if python:
        variables["Python_INCLUDE_DIR"] = headers.include_folder(python)
        # pybind11 tries link-time optimisation, for which zig would build its C++ library again.
        variables["CMAKE_INTERPROCEDURAL_OPTIMIZATION"] = "OFF"
        if not platform.is_host:
            env["SETUPTOOLS_EXT_SUFFIX"] = f".{python.soabi(platform.architecture)}.so"
            variables["PYBIND11_USE_CROSSCOMPILING"] = "ON"
    settings = {f"cmake.define.{name}": str(value) for name, value in variables.items()}
    if build_folder is not None:
        settings["build-dir"] = str(build_folder)
    program = python.executable if python and backends else None
    places = (source, destination, log)
    return pep517.build(
        "build_wheel", NATIVE_BACKEND, *places, python=program, backends=backends, settings=settings, env=env
    )


def installed_cmake_dir() -> Path:
    """Return the folder of hami-config.cmake of the installed hami-core."""
    import hami

    return Path(hami.native.get_include()).with_name("cmake")


def log_of(work: Path) -> str:
    """Return the name of the log of a build in that folder."""
    return f"wheel-{work.parent.name}-{work.name}"

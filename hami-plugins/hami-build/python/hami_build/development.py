"""Builds native plugins for this machine alone: incremental, with its compiler, into a folder like a wheel."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hami_build import sources, zig
from hami_build.project import Project
from hami_build.steps import environment, run


def compiler_settings() -> list[str]:
    """Return the settings for cmake: the system's C++ compiler, else that of the wheels; ccache if it is installed."""
    if has_compiler():
        return launcher_settings()
    return [*launcher_settings(), f"-DCMAKE_TOOLCHAIN_FILE={zig.TOOLCHAIN}", f"-DHAMI_ZIG_TARGET={zig.TARGET}"]


def launcher_settings() -> list[str]:
    """Return the settings for cmake with which compilers run by ccache if it is installed."""
    if not shutil.which("ccache"):
        return []
    return [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in ("C", "CXX")]


def has_compiler() -> bool:
    """Return whether this machine has compilers for C and C++."""
    return bool(shutil.which("c++") and shutil.which("cc"))


def build_environment(**extra: str) -> dict[str, str]:
    """Return the environment for cmake: its own programs first on the path, and zig if there is no other compiler."""
    if not has_compiler():
        zig.warm_up()
        return {**zig.build_environment(), **extra}
    return environment(PATH=search_path(), **extra)


def search_path() -> str:
    """Return the folders with programs: those of this environment first."""
    return f"{Path(sys.executable).parent}:{os.environ.get('PATH', '/usr/bin:/bin')}"


def compile_project(
    project: Project,
    work: Path,
    cmake_dir: Path,
    settings: Sequence[str] | None = None,
    env: Mapping[str, str] | None = None,
) -> Path:
    """Compile what has changed since the last call; return a folder with the files as a wheel would contain them.

    Args:
        project: A native project.
        work: The build folder, which is kept.
        cmake_dir: The folder of hami-config.cmake.
        settings: Options for cmake, used when the build folder is configured; by default a debug build.
        env: The environment for cmake; by default that of `build_environment`.

    Raises:
        Failure: cmake or the compiler failed. The message has the last lines of its output.
    """
    whole = dict(build_environment() if env is None else env)
    options = ["-DCMAKE_BUILD_TYPE=Debug", *compiler_settings()] if settings is None else settings
    configure = [
        *("cmake", "-S", project.folder.resolve(), "-B", work, "-G", "Ninja", *options, f"-Dhami_DIR={cmake_dir}"),
        *(f"-DSKBUILD_PROJECT_NAME={project.module}", f"-DSKBUILD_PROJECT_VERSION={project.version}"),
    ]
    configure += [f"-D{name}={path}" for name, path in sources.definitions(project).items()]
    settings_file, text = work / "hami-settings", "\n".join(map(str, configure))
    if not (settings_file.is_file() and settings_file.read_text("utf-8") == text):
        run(configure, log=f"{work.name}-configure", env=whole)
        settings_file.write_text(text, "utf-8")
    stage = work / "stage"
    shutil.rmtree(stage, ignore_errors=True)
    run(["cmake", "--build", work], log=f"{work.name}-build", env=whole)
    run(["cmake", "--install", work, "--prefix", stage], log=f"{work.name}-install", env=whole)
    return stage


def build_in_place(project: Project, work: Path, cmake_dir: Path) -> list[Path]:
    """Compile a native project into its package folders, which git ignores; return the files that changed."""
    stage = compile_project(project, work, cmake_dir)
    built = [(file, project.packages.get(file.relative_to(stage).parts[0])) for file in stage.rglob("*.so")]
    return [
        package.joinpath(*file.relative_to(stage).parts[1:])
        for file, package in built
        if package and place(file, package.joinpath(*file.relative_to(stage).parts[1:-1]))
    ]


def place(module: Path, folder: Path) -> bool:
    """Copy a file into a folder in one step, unless it is there: a process that has loaded the old one keeps it."""
    target = folder / module.name
    if target.is_file() and target.stat().st_mtime_ns == module.stat().st_mtime_ns:
        return False
    work = folder / f".{module.name}.new.so"
    shutil.copy2(module, work)
    os.replace(work, target)
    return True

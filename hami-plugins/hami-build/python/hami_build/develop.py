"""Installs a plugin from its sources: Python files are used where they are, native code is compiled beside them."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path

from hami_build import development, pep517, project, wheel_file
from hami_build.errors import Failure
from hami_build.steps import environment, run, step
from hami_build.wheels import installed_cmake_dir, require

METADATA = "prepare_metadata_for_build_wheel"
POLL_S = 0.3  # how often the dates of the sources are compared
WHEEL = "Wheel-Version: 1.0\nGenerator: hami-build\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def install(folder: Path) -> str:
    """Install a project into this environment, as `pip install --editable` does; return a line that says so.

    A native project is compiled with the compiler of this machine into its package folder. Compiled objects are kept in
    the cache. `pip uninstall` removes the installation, but for the library in the package folder.

    Raises:
        Failure: The project is not valid, a tool is not installed, or it does not compile.
    """
    plugin = project.read(folder)
    if not plugin.is_native:
        with step(f"installing {plugin.name}"):
            _pip("--editable", folder.resolve())
        return f"{plugin.name} is installed from {folder.resolve()}"
    for tool in ("scikit_build_core", "cmake", "ninja"):
        require(tool)
    compile_changes(plugin)
    with tempfile.TemporaryDirectory() as work:
        wheel = editable_wheel(plugin, Path(work))
        _pip("--no-deps", "--force-reinstall", wheel)
        _pip(wheel)  # what it requires
    return f"{plugin.name} is installed from {folder.resolve()}; compile changes with hami-build develop"


def compile_changes(plugin: project.Project) -> list[Path]:
    """Compile what has changed; return the libraries that are new."""
    with step(f"compiling {plugin.name}"):
        return development.build_in_place(plugin, plugin.cached / "development", installed_cmake_dir())


def editable_wheel(plugin: project.Project, work: Path) -> Path:
    """Write a wheel with the metadata of a native project and the path of its packages (PEP 660)."""
    metadata = pep517.build(METADATA, plugin.backend, plugin.folder, work / "metadata", "develop-metadata")
    written = [path for path in metadata.rglob("*") if path.is_file()]
    files = {f"{metadata.name}/{path.relative_to(metadata)}": path.read_bytes() for path in written}
    files[f"{metadata.name}/WHEEL"] = WHEEL.encode()
    parents = sorted({str(package.parent.resolve()) for package in plugin.packages.values()})
    files[f"_{plugin.module}.pth"] = "".join(f"{parent}\n" for parent in parents).encode()
    name = metadata.name.removesuffix(".dist-info")
    return wheel_file.write(files, work / f"{name}-py3-none-any.whl")


def _pip(*arguments: str | Path) -> None:
    run([sys.executable, "-m", "pip", "install", "--quiet", *arguments], log="develop-install", env=environment())


def watch(folder: Path, before: Mapping[str, int]) -> Iterator[str]:
    """Compile a project whenever one of its files changes; yield a line each time, also if it does not compile.

    `before` are the `dates` of its sources before they were compiled last: files saved since then are compiled too.
    """
    plugin = project.read(folder)
    if not plugin.is_native:
        raise Failure(f"{plugin.name} is not compiled: changes of its Python files need no step; omit --watch")
    yield f"watching {folder.resolve()}; Ctrl-C ends"
    while True:
        time.sleep(POLL_S)
        now = dates(folder)
        if now != before:
            before = now
            try:
                changed = compile_changes(plugin)
            except Failure as error:
                yield f"error: {error}"
            else:
                yield f"compiled {', '.join(path.name for path in changed)}" if changed else "nothing to compile"


def dates(folder: Path) -> dict[str, int]:
    """Return when each source of a project was changed, in nanoseconds."""
    found = {}
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not _written_by_tools(name)]
        for name in files:
            path = os.path.join(parent, name)
            if not _written_by_tools(name) and os.path.isfile(path):
                found[path] = os.stat(path).st_mtime_ns
    return found


def _written_by_tools(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in project.NOT_SOURCE)

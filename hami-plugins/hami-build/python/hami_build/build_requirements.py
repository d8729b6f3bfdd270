"""Lends the build requirements that are installed here to another Python, which has none."""

from __future__ import annotations

import importlib.metadata as metadata
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement

from hami_build.errors import Failure
from hami_build.interpreters import Interpreter
from hami_build.project import Project


def linked(project: Project, python: Interpreter, folder: Path) -> Path:
    """Fill `folder` with the build requirements of a project, for PYTHONPATH of another Python; return it.

    Raises:
        Failure: One is not installed here, or is compiled for this Python alone.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    environment = {"python_version": ".".join(map(str, python.version[:2])), "extra": ""}
    for found in closure(project.requires, environment):
        for name in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (folder / name).exists():
                (folder / name).symlink_to(Path(str(found.locate_file(name))))
        if compiled := [file.name for file in found.files or () if is_compiled(file)]:
            raise Failure(
                f"{found.metadata['Name']} is compiled for one Python ({compiled[0]}); to build for {python.tag}, run "
                f"hami-build with {python.executable}"
            )
    return folder


def is_compiled(file: metadata.PackagePath) -> bool:
    """Return whether a file is an extension module that has no source in Python beside it, as mypyc leaves one."""
    name, _, suffix = file.name.partition(".cpython-")
    return (
        suffix.endswith(".so")
        and "__mypyc" not in name
        and not Path(str(file.locate())).with_name(f"{name}.py").is_file()
    )


def closure(texts: Iterable[str], environment: dict[str, str]) -> Iterator[metadata.Distribution]:
    """Yield the installed distributions of requirements, and of what these require."""
    waiting, seen = list(map(Requirement, texts)), set()
    while waiting:
        each = waiting.pop()
        if each.name in seen or not (each.marker is None or each.marker.evaluate(environment)):
            continue
        seen.add(each.name)
        try:
            found = metadata.distribution(each.name)
        except metadata.PackageNotFoundError:
            raise Failure(f"{each.name} is not installed, which the build requires: pip install '{each}'") from None
        yield found
        waiting += map(Requirement, found.requires or ())

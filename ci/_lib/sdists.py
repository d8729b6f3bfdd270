"""Builds source distributions, for `pip install --no-binary`; they include the tests."""

from __future__ import annotations

import shutil
from pathlib import Path

from hami_build.sdist import of_files
from hami_build.steps import exclusive

from . import core_wheel
from .checkout import tracked
from .paths import CACHE, PACKAGING, REQUIREMENTS, ROOT, content_key, pyproject

SDISTS = CACHE / "sdists"
INPUTS = [ROOT / "ci" / "_lib" / name for name in ("checkout.py", "sdists.py")]
INPUTS += [REQUIREMENTS / "backend.txt", PACKAGING / "sdist.py"]


def sources(project: Path) -> list[Path]:
    """Return the files for the source distribution of this project: a plugin's folder, or the checkout for the core.

    Only files that git tracks: other files in the release manager's folder must not be published.
    """
    if project != ROOT:
        return tracked(ROOT, [project])
    rules = pyproject(ROOT)["tool"]["scikit-build"]["sdist"]["exclude"]
    return tracked(ROOT, [ROOT / rule.removeprefix("!/") for rule in rules if rule.startswith("!/")])


def finished(project: Path) -> Path:
    """Return the folder of the finished source distribution, whether or not it exists."""
    name = "hami_core" if project == ROOT else project.name.replace("-", "_")
    return SDISTS / f"{name}-{content_key([*INPUTS, *sources(project)])}"


def build(project: Path) -> Path:
    """Build the source distribution of `project` from a copy: build backends include any file in the folder."""
    folder = finished(project)
    with exclusive(f"sdist-{folder.name}"):
        if not folder.is_dir():
            _build(project, folder)
    return next(folder.glob("*.tar.gz"))


def _build(project: Path, folder: Path) -> None:
    work = CACHE / "build" / f"{folder.name}-work"
    shutil.rmtree(work, ignore_errors=True)
    backend_of = pyproject(project)["build-system"]["build-backend"]
    log = f"sdist-{folder.name}"
    of_files(project, sources(project), work, backend_of, log, work / "finished")
    core_wheel.keep(work, folder)

"""Builds source distributions, for `pip install --no-binary`; they include the tests."""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
from pathlib import Path

from hami_build import pep517
from hami_build.steps import exclusive

from . import backend, core_wheel
from .checkout import tracked
from .paths import CACHE, REQUIREMENTS, ROOT, content_key, pyproject

SDISTS = CACHE / "sdists"
INPUTS = [ROOT / "ci" / "_lib" / name for name in ("backend.py", "checkout.py", "sdists.py")]
INPUTS += [REQUIREMENTS / "backend.txt"]


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
    for file in sources(project):
        copy = work / "source" / file.relative_to(project)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)
    made = backend.build("build_sdist", work / "source", work / "raw", f"sdist-{folder.name}")
    (work / "finished").mkdir()
    normalise(made, work / "finished" / made.name)
    core_wheel.keep(work, folder)


def belongs(member: tarfile.TarInfo) -> bool:
    """Return whether a file belongs into the archive; build backends also add the .gitignore of the checkout."""
    return member.isfile() and not member.name.endswith("/.gitignore")


def normalise(made: Path, destination: Path) -> None:
    """Write the archive without owners, modes, dates and order of the machine that built it."""
    plain = io.BytesIO()
    with tarfile.open(made) as source, tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as target:
        for member in sorted(filter(belongs, source), key=lambda member: member.name):
            clean = tarfile.TarInfo(member.name)
            clean.size, clean.mtime = member.size, int(pep517.EPOCH)
            clean.mode = 0o755 if member.mode & 0o100 else 0o644
            target.addfile(clean, source.extractfile(member))
    with destination.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=int(pep517.EPOCH)) as archive:
        archive.write(plain.getvalue())

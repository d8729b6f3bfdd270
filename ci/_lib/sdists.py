"""Source distributions: what `pip install --no-binary` compiles, tests included."""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
from pathlib import Path

from . import backend, core_wheel
from .checkout import tracked
from .paths import CACHE, REQUIREMENTS, ROOT, content_key, pyproject
from .steps import exclusive

SDISTS = CACHE / "sdists"
INPUTS = [ROOT / "ci" / "_lib" / name for name in ("backend.py", "checkout.py", "sdists.py")]
INPUTS += [REQUIREMENTS / "backend.txt"]


def sources(project: Path) -> list[Path]:
    """The files that the source distribution of this project (a plugin's folder, or the checkout: the core) is made of.

    Only what git tracks: whatever else lies in the folder of whoever releases must not get into it.
    """
    if project != ROOT:
        return tracked(ROOT, [project])
    rules = pyproject(ROOT)["tool"]["scikit-build"]["sdist"]["exclude"]
    return tracked(ROOT, [ROOT / rule.removeprefix("!/") for rule in rules if rule.startswith("!/")])


def finished(project: Path) -> Path:
    """Where the source distribution of this project lies, or will."""
    name = "hami_core" if project == ROOT else project.name.replace("-", "_")
    return SDISTS / f"{name}-{content_key([*INPUTS, *sources(project)])}"


def build(project: Path) -> Path:
    """The source distribution of `project`, out of a copy: build backends take along what lies in a folder."""
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
    """Build backends take along the .gitignore of whatever checkout the project lies in."""
    return member.isfile() and not member.name.endswith("/.gitignore")


def normalise(made: Path, destination: Path) -> None:
    """The same archive without what depends on the machine: owners, modes, dates, order."""
    plain = io.BytesIO()
    with tarfile.open(made) as source, tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as target:
        for member in sorted(filter(belongs, source), key=lambda member: member.name):
            clean = tarfile.TarInfo(member.name)
            clean.size, clean.mtime = member.size, int(backend.EPOCH)
            clean.mode = 0o755 if member.mode & 0o100 else 0o644
            target.addfile(clean, source.extractfile(member))
    with destination.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=int(backend.EPOCH)) as archive:
        archive.write(plain.getvalue())

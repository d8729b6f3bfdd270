"""Source distributions: what `pip install --no-binary` compiles, tests included."""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
from pathlib import Path

from . import backend, core_wheel, plugin_wheels
from .paths import CACHE, REQUIREMENTS, ROOT, content_key

SDISTS = CACHE / "sdists"
INPUTS = [ROOT / "ci" / "_lib" / name for name in ("backend.py", "sdists.py")] + [REQUIREMENTS / "backend.txt"]
# The parts of the checkout that belong to the core; sdist.exclude in pyproject.toml leaves out the others.
BESIDE = (".clang-format", "CHANGELOG.md", "CMakePresets.json", "examples", "hami-core", "tests")
CORE = [*core_wheel.INPUTS, *(ROOT / name for name in BESIDE)]


def finished(project: Path) -> Path:
    """Where the source distribution of this project (a plugin's folder, or the checkout: the core) lies, or will."""
    name = "hami_core" if project == ROOT else project.name.replace("-", "_")
    return SDISTS / f"{name}-{content_key([*INPUTS, *(CORE if project == ROOT else [project])])}"


def build(project: Path) -> Path:
    """The source distribution of `project`."""
    folder = finished(project)
    if not folder.is_dir():
        if project == ROOT:
            work = CACHE / "build" / "sdist-work"
            shutil.rmtree(work, ignore_errors=True)
            made = backend.build("build_sdist", ROOT, work / "raw", "sdist-hami-core")
        else:
            with plugin_wheels.copied(project, "sdist") as work:
                made = backend.build("build_sdist", work / "source", work / "raw", f"sdist-{project.name}")
        (work / "finished").mkdir()
        normalise(made, work / "finished" / made.name)
        core_wheel.keep(work, folder)
    return next(folder.glob("*.tar.gz"))


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

"""Makes source distributions: the same files become the same bytes on every machine."""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
from collections.abc import Iterable
from pathlib import Path

from hami_build import pep517
from hami_build.errors import Failure
from hami_build.git import git
from hami_build.project import NOT_SOURCE, read
from hami_build.steps import exclusive, step


def belongs(member: tarfile.TarInfo) -> bool:
    """Return whether a file belongs in the archive; some build backends also add the .gitignore of the checkout."""
    return member.isfile() and member.name.partition("/")[2] != ".gitignore"


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


def build(folder: Path, destination: Path) -> Path:
    """Build the source distribution of a project from the files that git tracks, or from all without git."""
    project = read(folder)
    work = project.cached / "sdist"
    with exclusive(f"project-{work.parent.name}-sdist"), step(f"building the source distribution of {project.name}"):
        shutil.rmtree(work, ignore_errors=True)
        return of_files(folder, tracked(folder), work, project.backend, f"sdist-{work.parent.name}", destination)


def of_files(
    folder: Path,
    files: Iterable[Path],
    work: Path,
    backend: str,
    log: str,
    destination: Path,
    backends: Path | None = None,
) -> Path:
    """Build a source distribution from a copy of some files of `folder`: build backends include any file they find.

    The sources of others that the project is compiled with are added: a build from it downloads none of them.
    """
    from hami_build import sources  # needs the package packaging, which a bare Python does not have

    for file in files:
        copy = work / "source" / file.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)
    if (others := sources.folder_of(read(folder))) is not None:
        shutil.copytree(others, work / "source" / sources.FOLDER, dirs_exist_ok=True)
    made = pep517.build("build_sdist", backend, work / "source", work / "raw", log, backends=backends)
    destination.mkdir(parents=True, exist_ok=True)
    normalise(made, destination / made.name)
    return destination / made.name


def tracked(folder: Path) -> list[Path]:
    """Return the files of a project that git tracks; outside of a checkout, every file except hidden ones.

    Hidden files are often private: `.env` has passwords, `.netrc` too.

    Raises:
        Failure: The project is in a checkout, and git cannot list its files.
    """
    try:
        names = git(folder, "-c", "safe.directory=*", "ls-files", "-z", "--", ".").split("\0")
    except Failure:
        if any((parent / ".git").exists() for parent in (folder.resolve(), *folder.resolve().parents)):
            raise
        names = []
    found = [folder / name for name in names if name and (folder / name).is_file()]
    every = (path for path in folder.rglob("*") if path.is_file() and not private(path.relative_to(folder)))
    return found or sorted(every)


def private(path: Path) -> bool:
    """Return whether a file or one of its folders is hidden, or was written by a tool."""
    return any(part.startswith(".") for part in path.parts) or ignored(path)


def ignored(path: Path) -> bool:
    """Return whether tools wrote a file, or one of the folders that it is in."""
    return any(Path(part).match(pattern) for part in path.parts for pattern in NOT_SOURCE)

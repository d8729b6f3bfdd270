"""Makes source distributions reproducible: the same files become the same bytes on every machine."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

from hami_build import pep517


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

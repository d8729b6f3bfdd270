"""Checks that a file is complete: the archive can be read to its end and contains what its own list names."""

from __future__ import annotations

import email
import tarfile
from pathlib import Path

from hami_build import archive, index, wheel_file

Check = tuple[str, bool, str]
LISTED = ("METADATA", "WHEEL", "RECORD")


def check(file: Path) -> Check:
    """The first check; a file that fails it cannot be audited further."""
    try:
        problem = problem_of_wheel(file) if file.suffix == ".whl" else problem_of_sdist(file)
    except Exception as error:  # zipfile, tarfile and decoders raise many kinds for a damaged archive
        problem = f"cannot be read: {error or type(error).__name__}"
    return "archive", not problem, problem or "complete"


def problem_of_wheel(wheel: Path) -> str:
    """Return why the archive is invalid; "" if it is valid."""
    parts = wheel.stem.split("-")
    if len(parts) not in (5, 6):
        return "its name is not NAME-VERSION-PYTHON-ABI-PLATFORM.whl"
    files = wheel_file.read(wheel)
    info = f"{parts[0]}-{parts[1]}.dist-info"
    if missing := [name for name in LISTED if f"{info}/{name}" not in files]:
        return f"missing: {', '.join(f'{info}/{name}' for name in missing)}"
    own = f"{info}/RECORD"
    said = set(files.pop(own).decode().splitlines())
    true = set(wheel_file.record(files, own).decode().splitlines())
    wrong = sorted(line.partition(",")[0] for line in said ^ true)
    if wrong:
        return f"RECORD is wrong about {', '.join(dict.fromkeys(wrong))}"
    for name, reads in (("entry_points.txt", archive.entry_points), ("WHEEL", archive.tags)):
        try:
            reads(files)
        except (ValueError, TypeError) as error:
            return f"{info}/{name} cannot be read: {error}"
    return wheel_file.contradiction(wheel, wheel_file.metadata({**files, own: b""}))


def problem_of_sdist(sdist: Path) -> str:
    """Return why the archive is invalid; "" if it is valid."""
    if not sdist.name.endswith(".tar.gz") or "-" not in sdist.name:
        return "its name is neither that of a wheel nor NAME-VERSION.tar.gz"
    with tarfile.open(sdist) as opened:
        for _ in opened:  # to the end
            pass
    text = index.metadata_of_source(sdist)
    return wheel_file.contradiction(sdist, email.message_from_bytes(text)) if text else ""

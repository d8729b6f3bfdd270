"""Writes a package index of static files for any web server: PEP 503 pages, PEP 691 JSON, hashes, metadata."""

from __future__ import annotations

import email
import email.message
import gzip
import hashlib
import html
import itertools
import json
import shutil
import tarfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import quote

from packaging.utils import canonicalize_name

from hami_build import wheel_file
from hami_build.errors import Failure

FILES = "files"
SIMPLE = "simple"
SUFFIXES = (".whl", ".tar.gz")
MAX_SOURCE_BYTES = 256 << 20  # of the files of a source distribution, and of their headers
MAX_SOURCE_FILES = 1 << 16
MAX_METADATA_BYTES = 4 << 20  # far above the README of any project, which is most of the metadata
PROVENANCE = ".provenance"  # of the file beside an archive with its provenance object (PEP 740)


@dataclass(frozen=True)
class Archive:
    """One wheel or source distribution."""

    path: Path
    project: str  # normalised name, as in addresses
    requires_python: str
    sha256: str
    metadata: bytes  # only of a wheel: that of a source distribution may change when it is built

    @property
    def provenance(self) -> Path | None:
        """The file with its provenance object, if there is one beside it."""
        file = self.path.with_name(f"{self.path.name}{PROVENANCE}")
        return file if file.is_file() else None


def read(path: Path) -> Archive:
    """Hash `path` and read its metadata.

    Raises:
        Failure: It is neither a wheel nor a source distribution, or its metadata and its name contradict each other.
    """
    wheel = path.suffix == ".whl"
    if not path.is_file():
        raise Failure(f"{path} is not a regular file; give the path of a wheel or a source distribution")
    try:
        metadata, folder = _metadata_of_wheel(path) if wheel else (metadata_of_source(path), "")
        if not metadata:
            raise ValueError("no metadata")
    except Failure:
        raise
    except Exception as error:  # zipfile and tarfile raise many kinds for a damaged archive
        raise Failure(
            f"{path} does not contain the metadata of a wheel or a source distribution; build it again"
        ) from error
    message: email.message.Message = email.message_from_bytes(metadata)
    if problem := wheel_file.contradiction(path, message, folder):
        raise Failure(f"{path} is not what its name says: {problem}; build or download it again")
    project = canonicalize_name(message["Name"])
    requires_python = str(message.get("Requires-Python", ""))
    return Archive(path, project, requires_python, sha256(path), metadata if wheel else b"")


def sha256(path: Path) -> str:
    """Return the hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _metadata_of_wheel(path: Path) -> tuple[bytes, str]:
    """Return METADATA of a wheel, and the name of its folder."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        folders = sorted({name.partition("/")[0] for name in names if "/" in name})
        found = [folder for folder in folders if folder.lower().endswith(".dist-info")]
        if len(found) > 1 or names.count(f"{found[0]}/METADATA") > 1:  # installers take different ones
            raise Failure(f"{path} has metadata more than once: {', '.join(found)}; build it again")
        with archive.open(f"{found[0]}/METADATA") as member:
            return _bounded(member, path), found[0]


def metadata_of_source(path: Path) -> bytes:
    """Return PKG-INFO of a source distribution; empty if it has none."""
    wanted, found = f"{path.name.removesuffix('.tar.gz')}/PKG-INFO", b""
    with gzip.open(path) as content:
        archive = tarfile.open(fileobj=cast("IO[bytes]", _Limited(content, path)), mode="r|")  # noqa: SIM115  # no file
        for number, member in enumerate(archive):
            if number == MAX_SOURCE_FILES:
                raise Failure(f"{path} has more than {MAX_SOURCE_FILES} files; leave out those that no build needs")
            if member.name != wanted or not (file := archive.extractfile(member) if member.isfile() else None):
                continue
            if found:  # installers take different ones
                raise Failure(f"{path} has metadata more than once: {wanted}; build it again")
            found = _bounded(file, path)
    return found


class _Limited:
    """A file that ends with a Failure after MAX_SOURCE_BYTES: zeros take a thousandth of their size in an archive."""

    def __init__(self, content: gzip.GzipFile, path: Path) -> None:
        self._content, self._path = content, path
        self._left = MAX_SOURCE_BYTES

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= self._left:
            raise Failure(
                f"{self._path} has more than {MAX_SOURCE_BYTES >> 20} MiB of files; leave out those that no build needs"
            )
        data = self._content.read(size)
        self._left -= len(data)
        return data


def _bounded(member: IO[bytes], path: Path) -> bytes:
    """Read metadata, which may be compressed to a small part of their size."""
    text = member.read(MAX_METADATA_BYTES + 1)
    if len(text) > MAX_METADATA_BYTES:
        raise Failure(f"the metadata of {path} have more than {MAX_METADATA_BYTES >> 20} MiB; shorten its README")
    return text


def archives_in(folder: Path) -> list[Path]:
    """Return the wheels and source distributions in `folder`."""
    return sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIXES)) if folder.is_dir() else []


def write(paths: Iterable[Path], folder: Path) -> list[Archive]:
    """Make `folder` an index of exactly the files `paths`; it is replaced in one step, so it is never incomplete."""
    archives = sorted(map(read, paths), key=lambda archive: (archive.project, archive.path.name))
    for one, other in itertools.pairwise(archives):
        if one.path.name == other.path.name and one.sha256 != other.sha256:
            raise Failure(f"{one.path} and {other.path} have one name and different contents; give one of them")
    archives = list({archive.path.name: archive for archive in archives}.values())
    if folder.exists() and any(folder.iterdir()) and not (folder / SIMPLE / "index.html").is_file():
        raise Failure(f"{folder} contains files that do not belong to an index; give a new or an empty folder")
    work = folder.with_name(f"{folder.name}.work")
    shutil.rmtree(work, ignore_errors=True)
    (work / FILES).mkdir(parents=True)
    for archive in archives:
        shutil.copy2(archive.path, work / FILES)
        if archive.metadata:
            (work / FILES / f"{archive.path.name}.metadata").write_bytes(archive.metadata)
        if archive.provenance:
            shutil.copy2(archive.provenance, work / FILES)
    projects = {archive.project: [a for a in archives if a.project == archive.project] for archive in archives}
    names = "".join(f'<a href="{name}/">{name}</a><br>\n' for name in projects)
    _write_page(work / SIMPLE, "Simple index", names, {"projects": [{"name": name} for name in projects]})
    for name, files in projects.items():
        lines = "".join(_link(archive, f"../../{FILES}/") for archive in files)
        _write_page(
            work / SIMPLE / name,
            f"Links for {name}",
            lines,
            {"name": name, "files": [_entry(archive, f"../../{FILES}/") for archive in files]},
        )
    # One page with every file, for `pip --find-links ADDRESS`.
    (work / "index.html").write_text(_page("Files", "".join(_link(archive, f"{FILES}/") for archive in archives)))
    shutil.rmtree(folder, ignore_errors=True)
    work.rename(folder)
    return archives


def _write_page(folder: Path, title: str, lines: str, content: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    (folder / "index.html").write_text(_page(title, lines))
    (folder / "index.json").write_text(json.dumps({"meta": {"api-version": "1.0"}, **content}, indent=1))


def _page(title: str, lines: str) -> str:
    version = '<meta name="pypi:repository-version" content="1.0">'
    return f"<!DOCTYPE html>\n<html><head>{version}<title>{title}</title></head><body>\n{lines}</body></html>\n"


def _link(archive: Archive, base: str) -> str:
    attributes = f' data-requires-python="{html.escape(archive.requires_python)}"' if archive.requires_python else ""
    if archive.metadata:
        told = f"sha256={hashlib.sha256(archive.metadata).hexdigest()}"
        attributes += f' data-core-metadata="{told}" data-dist-info-metadata="{told}"'
    address = html.escape(f"{base}{quote(archive.path.name)}")
    if archive.provenance:
        attributes += f' data-provenance="{address}{PROVENANCE}"'
    return f'<a href="{address}#sha256={archive.sha256}"{attributes}>{html.escape(archive.path.name)}</a><br>\n'


def _entry(archive: Archive, base: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "filename": archive.path.name,
        "url": f"{base}{quote(archive.path.name)}",
        "hashes": {"sha256": archive.sha256},
    }
    if archive.requires_python:
        entry["requires-python"] = archive.requires_python
    if archive.provenance:
        entry["provenance"] = f"{base}{quote(archive.path.name)}{PROVENANCE}"
    if archive.metadata:
        # Not the older name "dist-info-metadata": pip 22.3 to 23.0 fail where JSON has it (PEP 714).
        entry["core-metadata"] = {"sha256": hashlib.sha256(archive.metadata).hexdigest()}
    return entry

"""Sources of other projects that a native plugin is compiled with: hashed source distributions of the package index.

They are named in pyproject.toml, are never part of the repository, and are part of the source distribution.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from hami_build import cache, package_index, pip_settings, sbom
from hami_build.errors import Failure
from hami_build.project import Project
from hami_build.steps import exclusive, step

FOLDER = "sources"  # in a source distribution, and where CMake looks first
NOTICES = "licenses"  # inside of it: the notices for the wheel, in a folder for each source
WITHOUT = "HAMI_WITHOUT_SOURCES"  # names of optional sources to build without
KEYS = {"from", "sha256", "folder", "files", "version", "license", "license-files", "optional"}
LISTS = {"files", "license-files"}
REQUIRED = KEYS - {"folder", "license-files", "optional"}
LINES = re.compile(r"(.+)#L([1-9]\d{0,8})-L([1-9]\d{0,8})")


@dataclass(frozen=True)
class Source:
    """One table [tool.hami-build.sources.NAME]."""

    name: str
    project: str  # on the package index
    release: str  # of that project
    sha256: str
    folder: str  # of the files, inside the archive
    files: tuple[str, ...]  # patterns
    version: str  # of the library, which the project only carries
    license: str
    notices: tuple[str, ...]  # files, or FILE#L1-L9 for lines of one
    optional: str  # what the plugin does without it; empty: it is needed

    @property
    def part(self) -> sbom.Part:
        """Its entry in the bill of materials."""
        return sbom.Part(self.name, self.version, self.license, f"pkg:generic/{self.name}@{self.version}")


def declared(project: Project) -> list[Source]:
    """Return the sources of a project, without the optional ones that HAMI_WITHOUT_SOURCES names.

    Raises:
        Failure: A table is not valid, or the variable names a source that is needed.
    """
    tables = project.table.get("tool", {}).get("hami-build", {}).get("sources", {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise Failure(
            f"{project.folder / 'pyproject.toml'}: [tool.hami-build.sources] must have a table for each source"
        )
    found = [_parsed(project, name, table) for name, table in tables.items()]
    left_out = set(os.environ.get(WITHOUT, "").replace(",", " ").split())
    if needed := [each.name for each in found if each.name in left_out and not each.optional]:
        raise Failure(
            f"{WITHOUT} names {needed[0]}, which {project.name} needs; only an optional source can be left out"
        )
    return [each for each in found if each.name not in left_out]


def _parsed(project: Project, name: str, table: Mapping[str, Any]) -> Source:
    where = f"{project.folder / 'pyproject.toml'}: [tool.hami-build.sources.{name}]"
    if wrong := sorted((REQUIRED - set(table)) | (set(table) - KEYS)):
        said = "has" if wrong[0] in table else "lacks"
        options = ", ".join(sorted(KEYS - REQUIRED))
        raise Failure(f'{where} {said} "{wrong[0]}"; it needs {", ".join(sorted(REQUIRED))}, and may have {options}')
    for key, value in table.items():
        texts = value if key in LISTS and isinstance(value, list) else [value]
        if (key in LISTS) != isinstance(value, list) or not all(isinstance(each, str) for each in texts):
            raise Failure(f"{where}: {key} must be {'a list of texts' if key in LISTS else 'a text'}, got {value!r}")
    patterns = [*table["files"], *(_lines(notice)[0] for notice in table.get("license-files", ()))]
    wrong = [each for each in patterns if not each or PurePosixPath(each).is_absolute() or ".." in each.split("/")]
    if wrong or not table["files"]:
        given = repr(wrong[0]) if wrong else "no files"
        raise Failure(f"{where}: files and license-files are paths in the folder of the source, got {given}")
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name) or name == NOTICES:
        raise Failure(f"{where}: {name!r} cannot be the name of a folder; write small letters, digits, - and _")
    if not re.fullmatch(r"[0-9a-f]{64}", table["sha256"]):
        raise Failure(f"{where}: sha256 must be 64 hexadecimal digits, got {table['sha256']!r}")
    wanted = pinned = None
    try:
        wanted = Requirement(table["from"])
        (pinned,) = wanted.specifier
    except (InvalidRequirement, ValueError):
        pass
    if wanted is None or pinned is None or pinned.operator != "==" or "*" in pinned.version:
        raise Failure(f"{where}: from must name one version, such as acme==1.0, got {table['from']!r}")
    return Source(
        name,
        project=wanted.name,
        release=pinned.version,
        sha256=table["sha256"],
        folder=table.get("folder", "").strip("/"),
        files=tuple(table["files"]),
        version=table["version"],
        license=table["license"],
        notices=tuple(table.get("license-files", ())),
        optional=table.get("optional", ""),
    )


def folder_of(project: Project) -> Path | None:
    """Return the folder with the sources of a project, NAME/FILE each; None if it names none.

    It is `sources` beside pyproject.toml in a source distribution, else a folder of the cache, which is filled once.

    Raises:
        Failure: A table is not valid, or a source cannot be had, is another file than was named, or lacks a file.
    """
    wanted = declared(project)
    if not wanted:
        return None
    given = project.folder / FOLDER
    if all((given / each.name).is_dir() for each in wanted):
        return given
    key = hashlib.sha256(json.dumps([astuple(each) for each in wanted]).encode()).hexdigest()[:16]
    folder = cache.folder() / FOLDER / f"{project.module}-{key}"
    with exclusive(f"sources-{key}"):
        if not folder.is_dir():
            work = folder.with_name(f"{folder.name}.work")
            shutil.rmtree(work, ignore_errors=True)
            for each in wanted:
                unpack(archive_of(each), each, work)
            os.replace(work, folder)  # an interrupted run leaves no incomplete folder
    return folder


def archive_of(source: Source) -> Path:
    """Return the source distribution with the hash of a source: that in the cache, else one of a package index."""
    file = f"{source.project}-{source.release}.tar.gz"
    kept = cache.folder() / FOLDER / "archives" / source.sha256 / file
    with exclusive(f"archive-{source.sha256[:16]}"):
        if kept.is_file() and hashlib.sha256(kept.read_bytes()).hexdigest() == source.sha256:
            return kept
        with step(f"fetching {file}, the source of {source.name}"):
            data = _fetched(source, file)
        kept.parent.mkdir(parents=True, exist_ok=True)
        work = kept.with_name(f"{file}.work")
        work.write_bytes(data)
        os.replace(work, kept)
    return kept


def _fetched(source: Source, file: str) -> bytes:
    settings = pip_settings.settings()
    seen = []
    for place in pip_settings.places(settings, source.project):
        named = pip_settings.without_password(place)
        try:
            offers = package_index.sdists(place, source.project, source.release, settings)
            if not offers:
                seen.append(f"{named} does not have it")
            for offer in offers:
                came = offer.sha256
                if came in ("", source.sha256):  # else it need not be read
                    data = package_index.read(offer.address, settings)
                    came = hashlib.sha256(data).hexdigest()
                    if came == source.sha256:
                        return data
                seen.append(f"{pip_settings.without_password(offer.address)} has SHA-256 {came}")
        except package_index.Unreachable as error:
            seen.append(f"{named}: {error}")
    lines = [
        f"the source of {source.name} cannot be had: wanted {file} with SHA-256 {source.sha256}",
        *(f"  {each}" for each in seen or ["pip's settings name no index and no folder"]),
        "Set pip to an index that has this file (PIP_INDEX_URL, PIP_PROXY, PIP_CERT), or put it into a folder: "
        "PIP_FIND_LINKS=FOLDER",
    ]
    if source.optional:
        lines.append(f"{source.name} is optional: with {WITHOUT}={source.name}, {source.optional}")
    raise Failure("\n".join(lines))


def unpack(archive: Path, source: Source, destination: Path) -> None:
    """Write the files of a source into `destination`/NAME, and its notices into `destination`/licenses/NAME.

    Raises:
        Failure: The archive cannot be read, leaves its folder, lacks a file, or a file is a link.
    """
    try:
        with tarfile.open(archive, "r:gz") as opened:
            members = {path: member for member in opened for path in [_inside(member.name, archive)]}
            files = dict(_chosen(source, members, archive))
            texts = {name: _text(opened, files[name], archive) for name in files}
    except (tarfile.TarError, OSError, EOFError) as error:
        raise Failure(f"{archive} cannot be read: {error or type(error).__name__}; remove it and try again") from error
    if folders := sorted({str(parent) for name in texts for parent in PurePosixPath(name).parents} & set(texts)):
        raise Failure(f"{archive} has a file and a folder {folders[0]}; nothing was unpacked")
    notices = {}
    for notice in source.notices:
        file, first, last = _lines(notice)
        notices[notice] = b"".join(texts[file].splitlines(keepends=True)[first:last])
        if not notices[notice]:
            raise Failure(f"{archive}: {notice} has no text; correct license-files of {source.name}")
    for name, text in texts.items():
        if any(PurePosixPath(name).match(pattern) for pattern in source.files):
            _write(destination / source.name / name, text)
    (destination / source.name / "VERSION").write_text(source.version, "utf-8")
    for notice, text in notices.items():
        _write(destination / NOTICES / source.name / PurePosixPath(_lines(notice)[0]).name, text)


def _lines(notice: str) -> tuple[str, int, int | None]:
    """Return the file of a notice, and which of its lines."""
    named = LINES.fullmatch(notice)
    return (named[1], int(named[2]) - 1, int(named[3])) if named else (notice, 0, None)


def _inside(name: str, archive: Path) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise Failure(f"{archive} has {name!r}, which is outside of its folder; nothing was unpacked")
    return PurePosixPath(*path.parts[1:])  # without NAME-VERSION


def _chosen(
    source: Source, members: Mapping[PurePosixPath, tarfile.TarInfo], archive: Path
) -> Iterator[tuple[str, tarfile.TarInfo]]:
    """Yield the files of a source by their paths in its folder."""
    below = {
        path.relative_to(source.folder): member
        for path, member in members.items()
        if path.is_relative_to(source.folder)
    }
    for pattern in dict.fromkeys([*source.files, *(_lines(each)[0] for each in source.notices)]):
        depth = len(PurePosixPath(pattern).parts)
        found = [path for path in below if len(path.parts) == depth and path.match(pattern) and not below[path].isdir()]
        if not found:
            raise Failure(
                f"{archive} has no {source.folder or 'file'}/{pattern}, which [tool.hami-build.sources.{source.name}] "
                "names; correct the table"
            )
        for path in found:
            if not below[path].isfile():
                raise Failure(f"{archive}: {below[path].name} is a link or a device, not a file; nothing was unpacked")
            yield str(path), below[path]


def _text(opened: tarfile.TarFile, member: tarfile.TarInfo, archive: Path) -> bytes:
    if member.size > package_index.MAX_BYTES:
        raise Failure(f"{archive}: {member.name} has more than {package_index.MAX_BYTES >> 20} MiB")
    stream = opened.extractfile(member)
    assert stream is not None  # it is a file
    return stream.read()


def _write(file: Path, text: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as target:  # several notices may be lines of one file
        target.write(text)


def parts(project: Project) -> Sequence[sbom.Part]:
    """Return the entries of a project's sources in its bill of materials."""
    return [each.part for each in declared(project)]


def definitions(project: Project) -> dict[str, Path]:
    """Return the variables of CMake that name the folder."""
    folder = folder_of(project)
    return {} if folder is None else {"HAMI_SOURCES": folder}

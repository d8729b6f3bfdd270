"""Reads and writes wheels; the same files become the same bytes on every machine."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import zipfile
from collections.abc import Mapping, Sequence
from email.message import Message
from email.parser import Parser
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from hami_build import sbom

DATE = (2020, 1, 1, 0, 0, 0)
MAX_BYTES = 2 << 30  # of all files, which are read into memory; far above any plugin
PROJECT = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")  # a canonical name, which is also the name of a folder in an index
FILE = re.compile(r"[A-Za-z0-9._+!-]+")  # of names, versions and tags; a terminal and a page show it as it is
ONCE = ("Name", "Version", "Requires-Python")  # fields that one reader would take first and another one last


def read(wheel: Path) -> dict[str, bytes]:
    """Return the files in `wheel`, by path."""
    with zipfile.ZipFile(wheel) as archive:
        if sum(member.file_size for member in archive.infolist()) > MAX_BYTES:
            raise zipfile.BadZipFile(f"its files have more than {MAX_BYTES >> 30} GiB")
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def info_folder(files: Mapping[str, bytes]) -> str:
    """Return the name of the .dist-info folder."""
    return next(name.partition("/")[0] for name in files if name.endswith(".dist-info/WHEEL"))


def metadata(files: Mapping[str, bytes]) -> Message:
    """Return the fields of METADATA."""
    return Parser().parsestr(files[f"{info_folder(files)}/METADATA"].decode())


def contradiction(file: Path, fields: Message, folder: str = "") -> str:
    """Return how the metadata of a file, and their folder in a wheel, contradict its name; "" if they agree.

    Installers ask an index by the name in the metadata and take the file by its name, so both must mean one project.
    The pages of an index repeat the name of the file and Requires-Python.
    """
    if not FILE.fullmatch(file.name):
        return f"{file.name!r} has other characters than letters, digits and . _ + ! -"
    if twice := [field for field in ONCE if len(fields.get_all(field, [])) > 1]:
        return f"its metadata have {twice[0]} more than once"
    parse = parse_wheel_filename if file.suffix == ".whl" else parse_sdist_filename
    try:
        name, version = parse(file.name)[:2]
    except (InvalidWheelFilename, InvalidSdistFilename) as error:
        return str(error)
    if not PROJECT.fullmatch(name):
        return f"{name!r} is not the name of a project"
    if folder and not _is_folder_of(folder, name, version):  # which installers refuse
        return f"its metadata are in {folder!r}, its file name says {name} {version}"
    said, said_version = str(fields["Name"]), str(fields["Version"])
    if canonicalize_name(said) != name:
        return f"its metadata say Name: {said!r}, its file name says {name}"
    try:
        same = Version(said_version) == version
    except InvalidVersion:
        same = False
    if not same:
        return f"its metadata say Version: {said_version!r}, its file name says {version}"
    python = str(fields.get("Requires-Python", ""))
    return "" if _is_specifier(python) else f"its metadata say Requires-Python: {python!r}, expected such as >=3.10"


def _is_folder_of(folder: str, name: str, version: Version) -> bool:
    said, _, said_version = folder.removesuffix(".dist-info").rpartition("-")
    try:
        return folder.endswith(".dist-info") and (canonicalize_name(said), Version(said_version)) == (name, version)
    except InvalidVersion:
        return False


def _is_specifier(text: str) -> bool:
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        return False
    return text.isascii() and text.isprintable()  # ===TEXT accepts any text


def finish(wheel: Path, destination: Path, platforms: Sequence[str], contains: Sequence[sbom.Part] = ()) -> Path:
    """Write `wheel` as it is published: tagged for `platforms`, with a bill of materials unless the build wrote one."""
    files = read(wheel)
    info = info_folder(files)
    python, abi = wheel.stem.split("-")[-3:-1]
    if not any(name.startswith(f"{info}/sboms/") for name in files):
        text = sbom.document(metadata(files), contains)
        files[f"{info}/sboms/{metadata(files)['Name']}.cdx.json"] = text.encode()
    files[f"{info}/WHEEL"] = retagged(files[f"{info}/WHEEL"], f"{python}-{abi}", platforms)
    files[f"{info}/METADATA"] = with_licences(files, info)
    destination.mkdir(parents=True, exist_ok=True)
    parts = [*wheel.stem.split("-")[:-1], ".".join(platforms)]
    return write(files, destination / f"{'-'.join(parts)}.whl")


def with_licences(files: Mapping[str, bytes], info: str) -> bytes:
    """Return METADATA with a line for each licence file, also for those that CMake has installed."""
    folder = f"{info}/licenses/"
    text = files[f"{info}/METADATA"]
    named = set(metadata(files).get_all("License-File") or [])
    found = (name.removeprefix(folder) for name in sorted(files) if name.startswith(folder))
    lines = "".join(f"License-File: {name}\n" for name in found if name not in named).encode()
    head, _, body = text.partition(b"\n\n")
    return b"%s\n%s\n%s" % (head.rstrip(b"\n"), lines, body) if lines else text


def retagged(wheel_file: bytes, interpreter: str, platforms: Sequence[str]) -> bytes:
    """Return the file WHEEL with a line for each of `platforms`."""
    lines = [line for line in wheel_file.decode().splitlines() if line and not line.startswith("Tag:")]
    return "".join(f"{line}\n" for line in [*lines, *(f"Tag: {interpreter}-{p}" for p in platforms)]).encode()


def write(files: Mapping[str, bytes], wheel: Path) -> Path:
    """Write the archive with a new RECORD; the metadata are last, as the format recommends."""
    info = info_folder(files)
    contents = {name: data for name, data in files.items() if name != f"{info}/RECORD"}
    contents[f"{info}/RECORD"] = record(contents, f"{info}/RECORD")
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(contents, key=lambda name: (name.startswith(info), name == f"{info}/RECORD", name)):
            entry = zipfile.ZipInfo(name, DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            archive.writestr(entry, contents[name])
    return wheel


def record(files: Mapping[str, bytes], own: str) -> bytes:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for name in sorted(files):
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).decode().rstrip("=")
        rows.writerow([name, f"sha256={digest}", len(files[name])])
    rows.writerow([own, "", ""])
    return text.getvalue().encode()

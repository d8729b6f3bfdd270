"""Writes and reads pylock.toml (PEP 751): the files of hami-core, of plugins and of their requirements, with hashes."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import hami
from hami import PluginError
from hami.cli import printable
from hami.config import parse_toml
from hami.packages import normalised, read_file
from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName
from packaging.specifiers import SpecifierSet
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

from hami_tools.packages import fetch

LOCK_VERSION = "1.0"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_VERSION = re.compile(r"[A-Za-z0-9.!+_-]+")
SUFFIXES = (".whl", ".tar.gz", ".zip")
VARIABLE = re.compile(r"\$\{")  # installers replace ${NAME} in a requirements file by a variable of the environment


class Locked(NamedTuple):
    """One file of a lock."""

    name: str
    version: str
    url: str
    sha256: str

    @property
    def file(self) -> str:
        return unquote(os.path.basename(urlsplit(self.url).path))

    def requirement(self, *, by_name: bool) -> str:
        """Return a line of a requirements file, which accepts this file only."""
        what = f"{self.name}=={self.version}" if by_name else f"{self.name} @ {self.url}"
        return f"{what} --hash=sha256:{self.sha256}"


def of_report(entry: dict[str, Any]) -> Locked:
    """Return the file of one entry of an installation report of pip. Raises PluginError if its hash is not known."""
    return _with_hash(file_of_report(entry))


def _with_hash(found: Locked) -> Locked:
    if not found.sha256:
        raise PluginError(
            f"the index has no sha256 hash for {found.name} {found.version}; lock it from another index: --index URL"
        )
    return found


def file_of_report(entry: dict[str, Any]) -> Locked:
    """Return the file of one entry of an installation report of pip, with an empty hash if the index has none."""
    name, version = normalised(entry["metadata"]["name"]), entry["metadata"]["version"]
    url = entry["download_info"]["url"]
    sha256 = entry["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256", "")
    if not sha256 and url.startswith("file://"):
        sha256 = hashlib.sha256(Path(unquote(urlsplit(url).path)).read_bytes()).hexdigest()
    return Locked(name, version, url, sha256)


def of_pylock(text: str) -> list[Locked]:
    """Return the file for this machine of each package of a pylock.toml that uv printed, which lists all files.

    Raises:
        PluginError: A package has no file for this machine, or no hash of it.
    """
    order = {tag: number for number, tag in enumerate(sys_tags())}
    found = []
    for package in parse_toml(text).get("packages", ()):
        name, version = normalised(package["name"]), str(package["version"])
        ranks = [
            (min(order.get(tag, len(order)) for tag in parse_wheel_filename(_file_name(wheel))[3]), number)
            for number, wheel in enumerate(package.get("wheels", ()))
        ]
        rank, number = min(ranks, default=(len(order), 0))
        file = package["wheels"][number] if rank < len(order) else package.get("sdist") or package.get("archive")
        if not file:
            raise PluginError(
                f"no index has a file of {name} {version} for this machine; name another one: --index URL"
            )
        sha256 = file.get("hashes", {}).get("sha256", "")
        url = file["url"] if "url" in file else Path(file["path"]).absolute().as_uri()
        found.append(_with_hash(Locked(name, version, url, sha256)))
    return found


def _file_name(file: dict[str, Any]) -> str:
    return str(file.get("name") or unquote(os.path.basename(urlsplit(file.get("url") or file["path"]).path)))


def render(locked: Sequence[Locked], python: str = "", machine: str = "") -> str:
    """Return the text of a pylock.toml for this Python and this kind of machine, or for those that are given.

    A file whose address has no scheme is beside the lock.
    """
    python = python or ".".join(map(str, sys.version_info[:2]))
    here = f"sys_platform == '{sys.platform}' and platform_machine == '{machine or platform.machine()}'"
    lines = [
        f"lock-version = {json.dumps(LOCK_VERSION)}",
        f"created-by = {json.dumps(f'hami-core {hami.__version__}')}",
        f"environments = [{json.dumps(f'{here} and python_version == {python!r}')}]",
    ]
    for each in sorted(locked):
        place = "url" if "://" in each.url else "path"
        file = (
            f"{{name = {json.dumps(each.file)}, {place} = {json.dumps(each.url)}, "
            f"hashes = {{sha256 = '{each.sha256}'}}}}"
        )
        kind = f"wheels = [{file}]" if each.file.endswith(".whl") else f"sdist = {file}"
        lines += ["", "[[packages]]", f"name = {json.dumps(each.name)}", f"version = {json.dumps(each.version)}", kind]
    return "\n".join([*lines, ""])


def read(path: Path) -> list[Locked]:
    """Return the files that a pylock.toml lists for this environment; raise PluginError for anything else."""
    try:
        table = parse_toml(read_file(path).decode("utf-8"))
        _validate(table)
        if str(table["lock-version"]).partition(".")[0] != LOCK_VERSION.partition(".")[0]:
            raise ValueError(f"its lock-version is {table['lock-version']}, expected {LOCK_VERSION}")
        locked = [_locked(package, path.parent) for package in table["packages"] if _is_here(package.get("marker"))]
        python, markers = str(table.get("requires-python", "")), table.get("environments", [])
        if not isinstance(markers, list) or not all(isinstance(marker, str) for marker in markers):
            raise ValueError('"environments" is not a list of texts')
        fits = SpecifierSet(python).contains(platform.python_version(), prereleases=True)
    except OSError as error:
        raise PluginError(f"cannot read {printable(path)}: {fetch.reason(error)}; write it with hami lock") from error
    except (KeyError, TypeError, ValueError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else error
        raise PluginError(
            f"{printable(path)} is not a lock that hami reads: {reason}; write it again with hami lock"
        ) from error
    if not fits or (markers and not any(map(_is_here, markers))):
        here = f"Python {platform.python_version()} on {sys.platform} {platform.machine()}"
        wanted = f"python {python}" if not fits else " or ".join(markers)
        raise PluginError(
            f"{printable(path)} is for another environment than this one ({here}): {wanted}; "
            "write a lock with hami lock in an environment like this one"
        )
    return locked


def _is_here(marker: str | None) -> bool:
    """Return whether a marker describes this environment; there may be none."""
    try:
        return marker is None or Marker(marker).evaluate()
    except (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName) as error:
        raise PluginError(f'the lock has the marker "{marker}", which has no meaning here; write it again') from error


def _validate(table: dict[str, Any]) -> None:
    """Check the table against PEP 751, which packaging can since its release 25.1."""
    try:
        from packaging.pylock import Pylock, PylockValidationError
    except ImportError:
        return
    try:
        Pylock.from_dict(table)
    except PylockValidationError as error:
        raise ValueError(error) from error


def _locked(package: dict[str, Any], folder: Path) -> Locked:
    name, version = package["name"], package["version"]
    files = package.get("wheels") or [package["sdist"]]
    if len(files) != 1:
        raise ValueError(f"{name} has {len(files)} wheels, expected one")
    url = files[0]["url"] if "url" in files[0] else Path(os.path.abspath(folder / files[0]["path"])).as_uri()
    locked = Locked(name, version, url, files[0]["hashes"]["sha256"])
    if name != normalised(name) or not _SHA256.fullmatch(locked.sha256):
        raise ValueError(f"{name!r} is not a canonical name with a sha256 hash")
    if not all(re.fullmatch(r"[!-~]+", text) for text in locked):  # the lines of a requirements file
        raise ValueError(f"{name} has a space or a control character in its version or address")
    if VARIABLE.search(locked.url):
        raise ValueError(f"the address of {name} has ${{…}}, which an installer replaces by a variable of this machine")
    address = urlsplit(locked.url)  # ValueError for an address that has none of the forms
    has_place = address.netloc if address.scheme in ("http", "https") else address.scheme == "file"
    if not has_place or address.fragment or not locked.file.endswith(SUFFIXES):
        raise ValueError(
            f"the address of {name} is {locked.url}, expected that of a wheel or a source distribution (.whl, .tar.gz, "
            ".zip) with https://, http:// or file://"
        )
    if not _VERSION.fullmatch(locked.version):
        raise ValueError(f"{locked.version!r} is not the version of a package, {name}")
    return locked

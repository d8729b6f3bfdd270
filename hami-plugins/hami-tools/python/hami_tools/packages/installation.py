"""Finds damaged installations of hami-core and of plugins, which some installs and upgrades by pip leave behind."""

from __future__ import annotations

import csv
import importlib.metadata as metadata
import os
import shlex
from functools import cached_property
from pathlib import Path

import hami
from hami.packages import CORE, digest, distributions, normalised, own_folders, reinstall
from packaging.requirements import Requirement

ALGORITHMS = ("sha256", "sha384", "sha512")  # that RECORD may use


class Copy:
    """One version of a distribution in one folder."""

    def __init__(self, distribution: metadata.Distribution, name: str, folder: str) -> None:
        self.name = normalised(name)
        self.version = distribution.version
        self.folder = folder
        self.requires = distribution.requires or []
        # Not of `distribution.files`, which leaves out what is missing since Python 3.12.
        # The files that it lists, with their hashes as RECORD writes them; "" for a weak one, or two that differ.
        self.recorded: dict[str, str] = {}
        for file, found in record_of(distribution):
            same = self.recorded.get(file, found) == found
            self.recorded[file] = found if same and found.partition("=")[0] in ALGORITHMS else ""
        # setuptools writes an .egg-info beside the sources of an editable installation.
        self.is_beside_sources = (
            not self.recorded
            and distribution.read_text("SOURCES.txt") is not None
            and distribution.read_text("installed-files.txt") is None
        )

    @cached_property
    def files(self) -> dict[str, str]:
        """Its files with their hashes, except compiled Python, and scripts, which `pip install --target` moves."""
        return {file: found for file, found in self.recorded.items() if found and ".." not in file.split("/")}

    @cached_property
    def changed(self) -> list[str]:
        """The files that are missing or were replaced."""
        return [name for name in self.files if not self._is_whole(name)]

    def changed_outside(self) -> list[str]:
        """Return the scripts and data in other folders of this Python that are missing or were replaced."""
        if self.folder not in own_folders():  # where `pip install --target` has moved them
            return []
        outside = [file for file, found in self.recorded.items() if found and file not in self.files]
        return [file for file in outside if not self._is_whole(file)]

    def _is_whole(self, file: str) -> bool:
        algorithm, _, value = self.recorded[file].partition("=")
        return digest(Path(self.folder, file), algorithm) == value

    @property
    def metadata_folder(self) -> str:
        """The folder with its metadata."""
        record = next((os.path.dirname(file) for file in self.recorded if os.path.basename(file) == "RECORD"), "")
        return os.path.join(self.folder, record or f"{self.name.replace('-', '_')}-{self.version}.dist-info")


def record_of(distribution: metadata.Distribution) -> list[tuple[str, str]]:
    """Return the files that the RECORD of a distribution lists, with their hashes; none if it cannot be read."""
    try:
        rows = csv.reader((distribution.read_text("RECORD") or "").splitlines())
        return [(row[0], row[1]) for row in rows if len(row) > 1]
    except (csv.Error, OSError, ValueError):  # damaged
        return []


def problems() -> list[str]:
    """Return one line for each problem, with the command that solves it."""
    copies = installed_copies()
    found = [] if CORE in copies else [f"{CORE} has no metadata: it was copied, not installed"]
    used = [same_name[0] for _, same_name in sorted(copies.items())]
    owners = _shared_files(used)
    for copy in used:
        if len(copies[copy.name]) > 1:
            found += _several_copies(copy.name, copies[copy.name])
        else:
            found += _changed_files(copy, owners) + _unmet_requirements(copy, copies)
    return found + _overwritten_files(owners)


def installed_copies() -> dict[str, list[Copy]]:
    """Return the copies of hami-core and of the distributions of plugins by name, in the order of sys.path."""
    names = {CORE, *(normalised(plugin.distribution) for plugin in hami.plugins())}
    found: dict[str, list[Copy]] = {}
    seen = set()
    for distribution in distributions():
        try:
            name, version = distribution.metadata["Name"], distribution.version
            folder = os.path.realpath(str(distribution.locate_file("")))
        except Exception:  # a leftover folder
            continue
        if not name or not version or normalised(name) not in names:
            continue
        if (name, version, folder) not in seen:  # sys.path may list a folder twice
            seen.add((name, version, folder))
            found.setdefault(normalised(name), []).append(Copy(distribution, name, folder))
    return {name: _without_sources(same_name) for name, same_name in found.items()}


def _without_sources(copies: list[Copy]) -> list[Copy]:
    """Leave out the metadata beside sources; the first of them counts if nothing is installed."""
    return [copy for copy in copies if not copy.is_beside_sources] or copies[:1]


def _several_copies(name: str, copies: list[Copy]) -> list[str]:
    """Report several copies of one distribution."""
    by_folder: dict[str, list[Copy]] = {}
    for copy in copies:
        by_folder.setdefault(copy.folder, []).append(copy)
    found = [_stale_metadata(name, folder, inside) for folder, inside in by_folder.items() if len(inside) > 1]
    if len(by_folder) > 1:
        first, *others = (f"{inside[0].version} in {folder}" for folder, inside in by_folder.items())
        found.append(
            f"{name} is installed {len(by_folder)} times: {first} hides {', '.join(others)}. "
            f"pip uninstall {name} removes the first"
        )
    return found


def _stale_metadata(name: str, folder: str, copies: list[Copy]) -> str:
    """Report the metadata of a previous version, which `pip install --target` leaves behind."""
    copies = sorted(copies, key=lambda copy: copy.version)
    right = [copy for copy in copies if copy.files and not copy.changed]
    problem = f"{name} has the metadata of {len(copies)} versions in {folder}: {', '.join(c.version for c in copies)}"
    if len(right) == 1:
        stale = [copy.metadata_folder for copy in copies if copy is not right[0]]
        return f"{problem}. The files belong to {right[0].version}: rm -r {shlex.join(stale)}"
    every = shlex.join(copy.metadata_folder for copy in copies)
    return f"{problem}. The files belong to none of them: rm -r {every}; {reinstall(name, folder)}"


def _changed_files(copy: Copy, owners: dict[str, list[str]]) -> list[str]:
    """Report files that are missing or were replaced, except by another plugin."""
    command = reinstall(copy.name, copy.folder)
    if copy.name == CORE and copy.version != hami.__version__:
        return [f"the metadata of {CORE} says {copy.version}, the binary is {hami.__version__}: {command}"]
    changed = [file for file in copy.changed if os.path.join(copy.folder, file) not in owners]
    if not changed:
        return []
    return [
        f"{copy.name} {copy.version} in {copy.folder} is damaged: {len(changed)} of its {len(copy.files)} files are "
        f"missing or were replaced, such as {changed[0]}: {command}"
    ]


def _shared_files(copies: list[Copy]) -> dict[str, list[str]]:
    """Return the files that several distributions contain, with the names of the distributions."""
    owners: dict[str, list[str]] = {}
    for copy in copies:
        for file in copy.files:
            owners.setdefault(os.path.join(copy.folder, file), []).append(copy.name)
    return {path: names for path, names in owners.items() if len(names) > 1}


def _overwritten_files(owners: dict[str, list[str]]) -> list[str]:
    """Report one file for each group of distributions that contain the same files."""
    first_of = {tuple(names): path for path, names in reversed(owners.items())}
    return [
        f"{' and '.join(names)} both contain {path}; the one installed last has overwritten it: uninstall one of them"
        for names, path in sorted(first_of.items())
    ]


def _unmet_requirements(copy: Copy, copies: dict[str, list[Copy]]) -> list[str]:
    """Report requirements on hami-core and plugins that the installed versions do not meet."""
    found = []
    for requirement in copy.requires:
        try:
            wanted = Requirement(requirement)
            name = normalised(wanted.name)
            if name not in copies or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
                continue
            version = hami.__version__ if name == CORE else copies[name][0].version
            if not wanted.specifier.contains(version, prereleases=True):
                found.append(
                    f"{copy.name} {copy.version} requires {requirement}, but {version} is installed: "
                    f"pip install --upgrade {shlex.quote(requirement)}"
                )
        except ValueError:  # no valid requirement, or a version that cannot be compared
            continue
    return found

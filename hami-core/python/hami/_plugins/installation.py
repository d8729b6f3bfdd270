"""Finds damaged installations of hami-core and plugins, as some pip installs and upgrades leave them."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata as metadata
import os
import shlex
import sysconfig
from functools import cached_property
from pathlib import Path

from hami import _core
from hami._plugins.index import normalised
from hami._plugins.manager import CORE, installed
from hami._plugins.versions import parse_requirement, satisfies


class Copy:
    """One distribution in one folder."""

    def __init__(self, distribution: metadata.Distribution, name: str, folder: str) -> None:
        self.name = normalised(name)
        self.version = distribution.version
        self.folder = folder
        self.requires = distribution.requires or []
        self._files = distribution.files or []  # of a copy without RECORD nothing is known

    @cached_property
    def files(self) -> dict[str, str]:
        """Its files with their hashes: not compiled Python, nor scripts, which `pip install --target` misplaces."""
        inside = (file for file in self._files if ".." not in file.parts)
        return {str(file): file.hash.value for file in inside if file.hash and file.hash.mode == "sha256"}

    @cached_property
    def changed(self) -> list[str]:
        """Files that are missing, or not those that came with it."""
        return [name for name, expected in self.files.items() if _sha256(Path(self.folder, name)) != expected]

    @property
    def metadata_folder(self) -> str:
        record = next((str(file.parent) for file in self._files if file.name == "RECORD"), "")
        return os.path.join(self.folder, record or f"{self.name.replace('-', '_')}-{self.version}.dist-info")


def _sha256(path: Path) -> str:
    try:
        digest = hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return ""
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def problems() -> list[str]:
    """Return a line for each problem, with what to do about it."""
    copies = _copies()
    found = [] if CORE in copies else [f"{CORE} has no metadata: it was copied, not installed"]
    used = [of_one_name[0] for _, of_one_name in sorted(copies.items())]
    shared = _shared(used)
    for copy in used:
        if len(copies[copy.name]) > 1:
            found += _told_copies(copy.name, copies[copy.name])
        else:
            found += _told_changed(copy, shared) + _unmet(copy, copies)
    return found + _told_shared(shared)


def _copies() -> dict[str, list[Copy]]:
    """Return hami-core and the distributions of plugins by name, each place once, in the order of sys.path."""
    ours = {CORE, *(normalised(plugin.distribution) for plugin in installed.records())}
    found: dict[str, list[Copy]] = {}
    places = set()
    for distribution in metadata.distributions():
        try:
            name, version = distribution.metadata["Name"], distribution.version
            folder = os.path.realpath(str(distribution.locate_file("")))
        except Exception:  # a leftover folder
            continue
        if not name or not version or normalised(name) not in ours:
            continue
        if (name, version, folder) not in places:  # sys.path may list a folder twice
            places.add((name, version, folder))
            found.setdefault(normalised(name), []).append(Copy(distribution, name, folder))
    return found


def _told_copies(name: str, copies: list[Copy]) -> list[str]:
    """Say what is wrong with several copies of one distribution."""
    by_folder: dict[str, list[Copy]] = {}
    for copy in copies:
        by_folder.setdefault(copy.folder, []).append(copy)
    found = [_told_stale(name, folder, there) for folder, there in by_folder.items() if len(there) > 1]
    if len(by_folder) > 1:
        first, *others = (f"{there[0].version} in {folder}" for folder, there in by_folder.items())
        found.append(
            f"{name} is there {len(by_folder)} times: {first} hides {', '.join(others)}. "
            f"pip uninstall {name} removes the first"
        )
    return found


def _told_stale(name: str, folder: str, copies: list[Copy]) -> str:
    """Tell of metadata that `pip install --target` leaves, over files of another version."""
    copies = sorted(copies, key=lambda copy: copy.version)
    right = [copy for copy in copies if copy.files and not copy.changed]
    told = f"{name} has the metadata of {len(copies)} versions in {folder}: {', '.join(c.version for c in copies)}"
    if len(right) == 1:
        stale = [copy.metadata_folder for copy in copies if copy is not right[0]]
        return f"{told}. Its files are those of {right[0].version}: rm -r {shlex.join(stale)}"
    every = shlex.join(copy.metadata_folder for copy in copies)
    return f"{told}. Its files are those of none: rm -r {every}; {_install_again(name, folder)}"


def _install_again(name: str, folder: str) -> str:
    """Return the command that reinstalls all files of a distribution in place."""
    if folder == os.path.realpath(sysconfig.get_path("purelib")):
        return f"pip install --force-reinstall --no-deps {name}"
    return f"pip install --upgrade --no-deps --target {shlex.quote(folder)} {name}"


def _told_changed(copy: Copy, shared: dict[str, list[str]]) -> list[str]:
    again = _install_again(copy.name, copy.folder)
    if copy.name == CORE and copy.version != _core.__version__:
        return [f"the metadata of {CORE} says {copy.version}, the binary is {_core.__version__}: {again}"]
    changed = [file for file in copy.changed if os.path.join(copy.folder, file) not in shared]
    if not changed:
        return []
    return [
        f"{copy.name} {copy.version} in {copy.folder} is not whole: {len(changed)} of its {len(copy.files)} files are "
        f"missing or others, such as {changed[0]}: {again}"
    ]


def _shared(copies: list[Copy]) -> dict[str, list[str]]:
    """Return the files that more than one distribution came with, with the names of these."""
    owners: dict[str, list[str]] = {}
    for copy in copies:
        for file in copy.files:
            owners.setdefault(os.path.join(copy.folder, file), []).append(copy.name)
    return {path: names for path, names in owners.items() if len(names) > 1}


def _told_shared(shared: dict[str, list[str]]) -> list[str]:
    first_of = {tuple(names): path for path, names in reversed(shared.items())}
    return [
        f"{' and '.join(names)} both come with {path}, which is now that of the one installed last: "
        f"uninstall one of them"
        for names, path in sorted(first_of.items())
    ]


def _unmet(copy: Copy, copies: dict[str, list[Copy]]) -> list[str]:
    """Return the requirements on ours that what is installed does not meet."""
    found = []
    for requirement in copy.requires:
        try:
            name, bounds = parse_requirement(requirement)
            there = copies.get(normalised(name))
            if there is None:
                continue
            version = _core.__version__ if normalised(name) == CORE else there[0].version
            if not satisfies(version, bounds):
                found.append(
                    f"{copy.name} {copy.version} needs {requirement}, and {version} is installed: "
                    f"pip install --upgrade {shlex.quote(requirement)}"
                )
        except ValueError:  # with extras or a marker: of the tests, or of a package that is none of ours
            continue
    return found

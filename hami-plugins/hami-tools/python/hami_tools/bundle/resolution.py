"""Finds the wheels that a bundle needs for one Python on one kind of machine."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from contextlib import suppress
from email.message import Message
from email.parser import BytesHeaderParser
from pathlib import Path
from typing import NamedTuple

from hami import PluginError
from hami.cli import printable
from hami.packages import normalised
from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from hami_tools.packages.installers import Pip, Sources, installed_versions
from hami_tools.packages.wheels import oldest_glibc, platform_tags

_ROUNDS = 10  # of downloads, each for what the wheels of the last one turned out to require


class Wheel(NamedTuple):
    """A wheel with its metadata."""

    path: Path
    metadata: Message
    unpacked: int  # bytes

    @property
    def name(self) -> str:
        return normalised(self.metadata["Name"])

    @property
    def version(self) -> str:
        return str(self.metadata["Version"])


class Target(NamedTuple):
    """One Python on one kind of machine, with the wheels for it."""

    python: str  # such as 3.12
    machine: str
    wheels: tuple[Wheel, ...]

    @property
    def tag(self) -> str:
        return f"cp{self.python.replace('.', '')}"

    @property
    def glibc(self) -> tuple[int, int]:
        """The oldest glibc that runs every wheel."""
        return max((oldest_glibc(wheel.path.name) for wheel in self.wheels), default=(0, 0))


def resolve(
    pip: Pip, requirements: Sequence[str], sources: Sources, folder: Path, platform: str, python: str
) -> Target:
    """Download the wheels for a platform and a Python, in the installed versions where packages are installed.

    Raises PluginError, which names the files that a folder of wheels lacks.
    """
    tags = platform_tags(platform)
    machine = tags[-1].removeprefix("linux_")
    options = [word for tag in tags for word in ("--platform", tag)]
    options += ["--python-version", python, "--implementation", "cp"]
    constraints = installed_versions()
    wanted, missing = list(requirements), list[str]()
    for _ in range(_ROUNDS):
        try:
            pip.download(wanted, sources, str(folder), options, constraints)
        except PluginError:
            if sources.folder:
                _require_files(Path(sources.folder), wanted, constraints, _environment(python, machine))
            raise
        wheels = {wheel.name: wheel for wheel in map(_read, sorted(folder.glob("*.whl")))}
        needed, missing = _closure(requirements, wheels, _environment(python, machine))
        if not missing:
            return Target(python, machine, tuple(wheels[name] for name in sorted(needed)))
        wanted += missing  # pip evaluates markers for the Python that runs it
    raise PluginError(f"the requirements of {', '.join(requirements)} do not end; add what is missing: {missing[0]}")


def _require_files(
    folder: Path, requirements: Sequence[str], pinned: Sequence[str], environment: dict[str, str]
) -> None:
    """Raise PluginError if a folder lacks a wheel in the installed version: pip calls this a conflict.

    Args:
        folder: Of the wheels.
        requirements: What the bundle needs.
        pinned: The installed packages with their versions, such as "acme-one==1.0".
        environment: The values of markers.
    """
    versions = dict(each.split("==", 1) for each in pinned)
    wheels = {}
    for path in sorted(folder.glob("*.whl")):
        with suppress(ValueError, StopIteration, zipfile.BadZipFile):  # of a file that pip does not take either
            name, version, _, _ = parse_wheel_filename(path.name)
            if str(version) == str(Version(versions.get(name, str(version)))):
                wheels[normalised(name)] = _read(path)
    needed = {normalised(Requirement(text).name) for text in _closure(requirements, wheels, environment)[1]}
    if absent := [f"{name} {versions[name]}" for name in sorted(needed & versions.keys())]:
        files = " and ".join(f"{each.replace('-', '_').replace(' ', '-')}-*.whl" for each in absent)
        verb = "is" if len(absent) == 1 else "are"
        raise PluginError(
            f"{printable(folder)} has no {files}: {' and '.join(absent)} {verb} installed here, and a bundle has the "
            "installed versions; add the file, or install a version that the folder has"
        )


def _read(path: Path) -> Wheel:
    with zipfile.ZipFile(path) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        unpacked = sum(info.file_size for info in archive.infolist())
        return Wheel(path, BytesHeaderParser().parsebytes(archive.read(name)), unpacked)


def _environment(python: str, machine: str) -> dict[str, str]:
    """Return the values of markers for CPython on Linux."""
    return {
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }


def _closure(
    requirements: Sequence[str], wheels: dict[str, Wheel], environment: dict[str, str]
) -> tuple[set[str], list[str]]:
    """Return the names of the wheels that an environment needs, and requirements that no wheel meets."""
    needed: set[str] = set()
    missing: list[str] = []
    waiting = [Requirement(text) for text in requirements]
    seen: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        name = normalised(requirement.name)
        if name not in wheels:
            plain = Requirement(str(requirement))
            plain.marker = None
            missing.append(str(plain))
            continue
        needed.add(name)
        extras = ["", *sorted(requirement.extras)]
        for text in wheels[name].metadata.get_all("Requires-Dist") or ():
            other = Requirement(text)
            marker = other.marker
            if marker is None or any(marker.evaluate({**environment, "extra": extra}) for extra in extras):
                waiting.append(other)
    return needed, missing

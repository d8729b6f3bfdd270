"""Other versions of hami-core, to run a plugin with: wheels, or the oldest and the newest of a folder or an index."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from hami_build.errors import Failure

NAME = "hami-core"


@dataclass(frozen=True)
class Core:
    """A version of hami-core, unpacked into a folder for PYTHONPATH."""

    version: Version
    folder: Path


def find(places: Sequence[str], wanted: SpecifierSet, work: Path) -> list[Core]:
    """Return the cores in `places` that `wanted` accepts, oldest first, unpacked into `work`.

    Args:
        places: Wheels of hami-core, folders of wheels, and addresses of package indexes. Of a folder and of an index
            only the oldest and the newest suitable version are used.
        wanted: The versions that the plugin requires.
        work: An empty folder.

    Raises:
        Failure: A place has no hami-core for this Python, or cannot be read.
    """
    found: dict[Version, Path] = {}
    for place in places:
        chosen = _of_place(place, wanted, work)
        found |= {version_of(wheel): wheel for wheel in chosen}
    return [unpacked(found[version], work / f"core-{version}") for version in sorted(found) if version in wanted]


def _of_place(place: str, wanted: SpecifierSet, work: Path) -> list[Path]:
    if "://" in place:
        return _downloaded(place, wanted, work)
    path = Path(place)
    if path.is_file():
        if not _suits(path):
            raise Failure(f"{path} is not a wheel of {NAME} for {_this()}; give one for it, or a folder of wheels")
        return [path]
    if not path.is_dir():
        raise Failure(f'"{place}" is neither a wheel, a folder nor the address of a package index')
    wheels = {version_of(wheel): wheel for wheel in path.glob("hami_core-*.whl") if _suits(wheel)}
    return [wheels[version] for version in _ends(list(wheels), wanted, place)]


def _ends(versions: Sequence[Version], wanted: SpecifierSet, place: str) -> list[Version]:
    """Return the oldest and the newest version that `wanted` accepts."""
    suitable = sorted(wanted.filter(versions))
    if not suitable:
        raise Failure(f"{place} has no {NAME}{wanted} for {_this()}")
    return [suitable[0], suitable[-1]]


def _downloaded(index: str, wanted: SpecifierSet, work: Path) -> list[Path]:
    text = _pip("index", "versions", NAME, "--index-url", index)
    listed = re.search(r"^Available versions: (.+)$", text, re.MULTILINE)
    ends = _ends([Version(each) for each in listed[1].split(", ")] if listed else [], wanted, index)
    for version in ends:
        options = ("--no-deps", "--only-binary", ":all:", "--index-url", index, "--dest", str(work))
        _pip("download", *options, f"{NAME}=={version}")
    return [wheel for wheel in work.glob("hami_core-*.whl") if version_of(wheel) in ends]


def _pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", *arguments, "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Failure(f"pip {arguments[0]} cannot get {NAME}: {said}; check the address, or give wheels")
    return done.stdout


def version_of(wheel: Path) -> Version:
    """Return the version in the name of a wheel."""
    return parse_wheel_filename(wheel.name)[1]


def _suits(wheel: Path) -> bool:
    try:
        name, _, _, tags = parse_wheel_filename(wheel.name)
    except InvalidWheelFilename:
        return False
    return name == NAME and not tags.isdisjoint(sys_tags())


def _this() -> str:
    return f"Python {sys.version_info[0]}.{sys.version_info[1]} on this machine"


def unpacked(wheel: Path, folder: Path) -> Core:
    """Unpack a wheel of hami-core."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    except zipfile.BadZipFile as error:
        raise Failure(f"{wheel} is damaged: {error}; build or download it again") from error
    return Core(version_of(wheel), folder)

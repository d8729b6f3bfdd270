"""Reads the names and entry points of wheels in a folder, and expands names of platforms for pip."""

from __future__ import annotations

import configparser
import re
import zipfile
from pathlib import Path

from hami import PluginError
from hami.packages import GROUPS, normalised

OLDEST_GLIBC = 5  # manylinux1 is for glibc 2.5
NEWEST_BY_DEFAULT = 28  # most engines are built for glibc 2.28
LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


def plugins_in(folder: Path) -> list[str]:
    """Return the names of the plugins whose wheels are in a folder; raise PluginError if it has none."""
    if not folder.is_dir():
        raise PluginError(f"{folder} is not a folder; give the folder that hami download wrote")
    found = sorted({name for wheel in folder.glob("*.whl") if (name := _plugin_of(wheel))})
    if not found:
        raise PluginError(f"{folder} contains no wheel of a plugin; fill it with hami download NAME --to FOLDER")
    return found


def _plugin_of(wheel: Path) -> str:
    """Return the name of the distribution if it has plugins or pipelines, else an empty text."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt")]
            text = "\n".join(archive.read(name).decode("utf-8") for name in names)
        parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
        parser.read_string(text)
    except (OSError, ValueError, zipfile.BadZipFile, configparser.Error) as error:
        raise PluginError(f"{wheel} is not a complete wheel: {error}; download it again") from error
    return normalised(wheel.name.partition("-")[0]) if GROUPS.intersection(parser.sections()) else ""


def platform_tags(platform: str) -> list[str]:
    """Return the tags that a system accepts: pip takes `--platform` literally.

    `x86_64` and `aarch64` stand for Linux with glibc 2.28 or newer.
    """
    if platform in ("x86_64", "aarch64"):
        platform = f"manylinux_2_{NEWEST_BY_DEFAULT}_{platform}"
    for minor, old in LEGACY.items():
        platform = re.sub(rf"^{old}_", f"manylinux_2_{minor}_", platform)
    found = re.fullmatch(r"manylinux_2_(\d{1,2})_(\w+)", platform)
    if not found:
        raise PluginError(
            f'--platform takes x86_64, aarch64, or a manylinux platform such as manylinux_2_28_x86_64, got "{platform}"'
        )
    newest, machine = int(found[1]), found[2]
    tags = []
    for minor in range(newest, OLDEST_GLIBC - 1, -1):
        tags.append(f"manylinux_2_{minor}_{machine}")
        if minor in LEGACY:
            tags.append(f"{LEGACY[minor]}_{machine}")
    return [*tags, f"linux_{machine}"]


def oldest_glibc(wheel: str) -> tuple[int, int]:
    """Return the oldest glibc that the name of a wheel promises to run with; (0, 0) for one without binaries."""
    for minor, old in LEGACY.items():
        wheel = wheel.replace(f"{old}_", f"manylinux_2_{minor}_")
    found = [(int(major), int(minor)) for major, minor in re.findall(r"manylinux_(\d+)_(\d+)_", wheel)]
    return min(found, default=(0, 0))

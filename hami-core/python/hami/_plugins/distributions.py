"""Reads the entry points of installed distributions. No distribution is imported, and damaged ones do not fail."""

from __future__ import annotations

import importlib
import importlib.metadata as metadata
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from hami._errors import PluginError
from hami._plugins.files import distributions
from hami._plugins.plugin import Plugin, normalised

GROUPS = {"hami", "hami.backends", "hami.devices", "hami.models", "hami.pipelines"}
_GROUP_HEADER = re.compile(r"^\[hami[.\]]", re.M)  # in an entry_points.txt


class Distribution(NamedTuple):
    """An installed distribution with entry points in the groups of hami."""

    name: str
    version: str
    entry_points: list[metadata.EntryPoint]


def installed_distributions() -> tuple[list[Distribution], list[Plugin]]:
    """Return the distributions with plugins or pipelines, sorted by name.

    The second list has a failed plugin for each distribution whose metadata cannot be read.
    """
    importlib.invalidate_caches()
    damaged: list[Plugin] = []
    found = []
    for name in _names(damaged):
        try:
            used = _copy_in_use(list(distributions(name=name)))
        except Exception:
            continue
        try:
            entry_points = [entry for entry in used.entry_points if entry.group in GROUPS]
        except Exception:
            if _GROUP_HEADER.search(used.read_text("entry_points.txt") or ""):
                damaged.append(_damaged(used, "its entry_points.txt is not a list of entry points"))
            continue
        if entry_points:
            found.append(Distribution(name, _version_of(used), entry_points))
    return found, damaged


def target_of(entry: metadata.EntryPoint) -> str:
    """Return the target of an entry point, without extras such as those of "package.module [gpu]"."""
    return entry.value.partition("[")[0].strip()


def _names(damaged: list[Plugin]) -> Iterator[str]:
    """Yield the names of distributions that may have plugins or pipelines, sorted.

    Most distributions have none, and a leftover folder may lack any file. Reading the text of entry_points.txt first
    keeps the former fast and the latter harmless.
    """
    names: dict[str, str] = {}
    for found in distributions():
        try:
            text = found.read_text("entry_points.txt") or ""
        except UnicodeDecodeError as error:
            if _GROUP_HEADER.search(error.object.decode(errors="replace")):
                damaged.append(_damaged(found, "its entry_points.txt is not UTF-8 text"))
            continue
        except Exception:
            continue
        if "hami" not in text:
            continue
        if name := _name_of(found):
            names.setdefault(normalised(name), name)
        elif _GROUP_HEADER.search(text):
            damaged.append(_damaged(found, "it has no METADATA with a name"))
    for _, name in sorted(names.items()):
        yield name


def _damaged(found: metadata.Distribution, reason: str) -> Plugin:
    """Return a failed plugin in place of a distribution whose metadata cannot be read."""
    folder = str(getattr(found, "_path", ""))
    name = _name_of(found) or os.path.basename(folder).partition("-")[0] or "(no name)"
    plugin = Plugin(name, name, _version_of(found), "")
    location = f" in {folder}" if folder else ""
    plugin.fail(PluginError(f"its metadata{location} is damaged: {reason}; remove it, or reinstall {name}"))
    return plugin


def _copy_in_use(copies: list[metadata.Distribution]) -> metadata.Distribution:
    """Return the metadata that counts among several of one name: the first on sys.path, as for an import.

    `pip install --target --upgrade` leaves the metadata of the previous version in the same folder. There, metadata
    with plugins or pipelines count.
    """
    if len(copies) == 1:
        return copies[0]
    first = next((copy for copy in copies if not _is_leftover(copy)), copies[0])
    same_folder = (copy for copy in copies if copy.locate_file("") == first.locate_file(""))
    return next((copy for copy in same_folder if any(entry.group in GROUPS for entry in copy.entry_points)), first)


def _is_leftover(copy: metadata.Distribution) -> bool:
    """Return whether the package itself was removed, and only its metadata are left."""
    files = (line.partition(",")[0] for line in (copy.read_text("RECORD") or "").splitlines())
    own = [file for file in files if ".dist-info/" not in file]
    return bool(own) and not any(os.path.exists(str(copy.locate_file(file))) for file in own)


def _name_of(found: metadata.Distribution) -> str:
    try:
        return found.metadata["Name"] or ""
    except Exception:  # without a METADATA file, newer Pythons raise and older ones return None
        return ""


def _version_of(found: metadata.Distribution) -> str:
    try:
        return found.version or "(unknown version)"
    except Exception:
        return "(unknown version)"

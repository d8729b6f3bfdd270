"""The catalogue: which plugins exist, with their backends, platforms and releases, as static JSON.

The core contains a snapshot. The policy of the machine or HAMI_CATALOG name another one. Here it is read for messages,
from a file; hami-tools reads addresses too, and verifies signatures.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_origin, get_type_hints

from hami._errors import PluginError
from hami._plugins import policy
from hami._plugins.files import Incomplete, read_file
from hami._text import printable, visible

SNAPSHOT = Path(__file__).with_name("catalog.json")
VARIABLE = "HAMI_CATALOG"
FORMAT = 1


class CatalogEntry(NamedTuple):
    """What the catalogue says about one plugin."""

    name: str
    summary: str
    version: str
    backends: dict[str, dict[str, Any]]  # each with "summary" and, if they are known, "params"
    pipelines: list[str]
    devices: list[str]
    models: list[str]  # extensions of the model files that it opens
    commands: list[str]  # that it adds to `hami`
    requires: list[str]
    platforms: list[str]
    abi: dict[str, str]  # of a native plugin: "min" and "built"
    releases: list[dict[str, Any]]  # each with "version" and "files", which have "name", "sha256", maybe "provenance"
    grade: str  # the lowest of the newest wheels, by hami-build check; empty: not graded


class Catalog(NamedTuple):
    """The plugins of one catalogue by canonical name."""

    source: str
    plugins: dict[str, CatalogEntry]

    def owners(self, kind: str) -> dict[str, list[str]]:
        """Return the plugins with each of a kind: "backends", "pipelines", "models", "commands" or "devices"."""
        found: dict[str, list[str]] = {}
        for name, plugin in self.plugins.items():
            for each in getattr(plugin, kind):
                found.setdefault(each, []).append(name)
        return found

    def files(self, plugin: str) -> Iterator[dict[str, Any]]:
        """Yield the files of every release of a plugin."""
        for release in self.plugins[plugin].releases if plugin in self.plugins else ():
            files = release.get("files")
            yield from (file for file in (files if isinstance(files, list) else ()) if isinstance(file, dict))


def load_local(environment: Mapping[str, str] = os.environ) -> Catalog:
    """Return the catalogue for messages: never from an address, and the snapshot if it cannot be read or is signed.

    If the snapshot is damaged too, the catalogue is empty: `hami doctor` reports the file.
    """
    rules = policy.read().others
    named = rules.get("catalog") or environment.get(VARIABLE)
    return _load_local(named if isinstance(named, str) and not rules.get("catalog_key") else "")


def first_party() -> Catalog:
    """Return the snapshot, which has the plugins of this project."""
    return _load_local("")


@cache
def _load_local(source: str) -> Catalog:
    for candidate in filter(None, ("" if "://" in source else source, str(SNAPSHOT))):
        try:
            return parse(read_file(Path(candidate)), candidate)
        except (PluginError, OSError, Incomplete):  # the commands report it
            continue
    return Catalog("", {})


def parse(text: bytes, source: str) -> Catalog:
    """Return the catalogue in `text`. Raises PluginError with the place of the first mistake."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged(source, f"it is not complete JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("plugins"), list):
        raise damaged(source, 'expected an object with a list "plugins"')
    if document.get("format") != FORMAT:
        raise PluginError(
            f"the catalogue {printable(source)} has the format {document.get('format')!r}, "
            f"this hami-core reads {FORMAT}: "
            "pip install --upgrade hami-core"
        )
    plugins: dict[str, CatalogEntry] = {}
    for number, fields in enumerate(document["plugins"]):
        entry = _entry(fields, f"plugins[{number}]", source)
        if entry.name in plugins:
            raise damaged(source, f"plugins[{number}] has the name of another plugin, {entry.name}")
        plugins[entry.name] = entry
    return Catalog(source, dict(sorted(plugins.items())))


_TYPES: dict[str, type] = {name: get_origin(kind) or kind for name, kind in get_type_hints(CatalogEntry).items()}
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")  # as packages are named in an index
_TEXTS = ("pipelines", "devices", "models", "commands", "requires", "platforms")


def _entry(fields: Any, place: str, source: str) -> CatalogEntry:
    if not isinstance(fields, dict):
        raise damaged(source, f"{place} is not an object")
    # Later formats may add keys.
    known = {key: _visible(fields.get(key, kind())) for key, kind in _TYPES.items()}
    for key, kind in _TYPES.items():
        if not isinstance(known[key], kind):
            raise damaged(source, f'"{key}" of {place} is not of the JSON type for {kind.__name__}')
    items = [item for key in _TEXTS for item in known[key]] + list(known["abi"].values())
    if not all(isinstance(item, str) for item in items):
        raise damaged(source, f'{place} has a list, or an "abi", with something else than texts')
    if not all(isinstance(backend, dict) for backend in known["backends"].values()):
        raise damaged(source, f'"backends" of {place} has something else than objects')
    if not all(isinstance(backend.get("params", []), list) for backend in known["backends"].values()):
        raise damaged(source, f'"params" of a backend of {place} is not a list')
    if not all(isinstance(release, dict) for release in known["releases"]):
        raise damaged(source, f'"releases" of {place} has something else than objects')
    if not _NAME.fullmatch(known["name"]):
        raise damaged(source, f"the name of {place} is not canonical: {known['name']!r}")
    return CatalogEntry(**known)


def _visible(value: Any) -> Any:
    """Return JSON with every text as `visible` shows it: the texts come from the authors of plugins."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, list):
        return [_visible(each) for each in value]
    if isinstance(value, dict):
        return {visible(key): _visible(each) for key, each in value.items()}
    return value


def damaged(source: str, problem: str) -> PluginError:
    """Return the error about a catalogue that is not one."""
    return PluginError(
        f"the catalogue {printable(source)} is damaged: {problem}; download it again, or name another one with "
        f"--catalog or {VARIABLE}"
    )

"""The catalogue: which plugins exist, with their backends, platforms and releases, as static JSON.

The core contains a snapshot. The policy of the machine, `--catalog` or HAMI_CATALOG name another one, a file or an
address. Only the commands that search and install read an address; nothing else opens a connection.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hami._errors import PluginError
from hami._plugins import fetch, policy
from hami._plugins.plugin import CORE
from hami._plugins.signatures import require_signature
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

    def backends(self) -> dict[str, list[str]]:
        """Return the plugins that provide each backend."""
        return self._owners("backends")

    def pipelines(self) -> dict[str, list[str]]:
        """Return the plugins that package each pipeline."""
        return self._owners("pipelines")

    def commands(self) -> dict[str, list[str]]:
        """Return the plugins that add each command to `hami`."""
        return self._owners("commands")

    def devices(self) -> dict[str, list[str]]:
        """Return the plugins with tensor backends for each kind of memory, that with the most backends first."""
        found = self._owners("devices")
        return {
            kind: sorted(names, key=lambda name: -len(self.plugins[name].backends)) for kind, names in found.items()
        }

    def files(self, plugin: str) -> Iterator[dict[str, Any]]:
        """Yield the files of every release of a plugin."""
        for release in self.plugins[plugin].releases if plugin in self.plugins else ():
            files = release.get("files")
            yield from (file for file in (files if isinstance(files, list) else ()) if isinstance(file, dict))

    def _owners(self, field: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, plugin in self.plugins.items():
            for each in getattr(plugin, field):
                found.setdefault(each, []).append(name)
        return found


def load(given: str | None = None, environment: Mapping[str, str] = os.environ) -> Catalog:
    """Return the catalogue of the machine's policy, else that is given, else that of HAMI_CATALOG, else the snapshot.

    Raises PluginError if it cannot be read or is not a catalogue, or if another one is given than that of the policy.
    """
    rules = policy.read()
    fixed = rules.catalog
    if fixed and given not in (None, "", fixed):
        raise PluginError(f"{policy.PATH} names the catalogue of this machine, {fixed}: leave out --catalog")
    source = fixed or given or environment.get(VARIABLE) or str(SNAPSHOT)
    return parse(_read(source, rules.catalog_key), source)


def load_local(environment: Mapping[str, str] = os.environ) -> Catalog:
    """Return the catalogue for error messages: never from an address, and the snapshot if it cannot be read.

    If the snapshot is damaged too, the catalogue is empty: `hami doctor` reports the file.
    """
    rules = policy.read()
    return _load_local(rules.catalog or environment.get(VARIABLE) or "", rules.catalog_key)


def first_party() -> Catalog:
    """Return the snapshot, which has the plugins of this project."""
    return _load_local("", "")


def require_grades(wanted: Iterable[str], changed: Iterable[str] = ()) -> None:
    """Raise PluginError for the first plugin that the policy of this machine refuses for its grade.

    `wanted` are plugins that the user names, `changed` any packages: those in the catalogue are plugins.
    """
    rules = policy.read()
    if rules.require_grade:
        plugins = load().plugins
        names = dict.fromkeys([*wanted, *(name for name in changed if name in plugins)])
        rules.require_grades({name: plugins[name].grade if name in plugins else "" for name in names if name != CORE})


@cache
def _load_local(source: str, key: str) -> Catalog:
    given = source if source and not fetch.is_address(source) else ""
    for candidate, its_key in ((given, key), (str(SNAPSHOT), "")):
        try:
            if candidate:
                return parse(_read(candidate, its_key), candidate)
        except PluginError:  # the commands report it
            continue
    return Catalog("", {})


def parse(text: bytes, source: str) -> Catalog:
    """Return the catalogue in `text`. Raises PluginError with the place of the first mistake."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(source, f"it is not complete JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("plugins"), list):
        raise _damaged(source, 'expected an object with a list "plugins"')
    if document.get("format") != FORMAT:
        raise PluginError(
            f"the catalogue {printable(source)} has the format {document.get('format')!r}, "
            f"this hami-core reads {FORMAT}: "
            "hami install --upgrade hami-core"
        )
    plugins: dict[str, CatalogEntry] = {}
    for number, fields in enumerate(document["plugins"]):
        entry = _entry(fields, f"plugins[{number}]", source)
        if entry.name in plugins:
            raise _damaged(source, f"plugins[{number}] has the name of another plugin, {entry.name}")
        plugins[entry.name] = entry
    return Catalog(source, dict(sorted(plugins.items())))


_TYPES: dict[str, type] = {
    "name": str,
    "summary": str,
    "version": str,
    "backends": dict,
    "pipelines": list,
    "devices": list,
    "commands": list,
    "requires": list,
    "platforms": list,
    "abi": dict,
    "releases": list,
    "grade": str,
}
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")  # as packages are named in an index
_TEXTS = ("pipelines", "devices", "commands", "requires", "platforms")


def _entry(fields: Any, place: str, source: str) -> CatalogEntry:
    if not isinstance(fields, dict):
        raise _damaged(source, f"{place} is not an object")
    # Later formats may add keys.
    known = {key: _visible(fields.get(key, kind())) for key, kind in _TYPES.items()}
    for key, kind in _TYPES.items():
        if not isinstance(known[key], kind):
            raise _damaged(source, f'"{key}" of {place} is not of the JSON type for {kind.__name__}')
    items = [item for key in _TEXTS for item in known[key]]
    if not all(isinstance(item, str) for item in items):
        raise _damaged(source, f"{place} has a list with something else than texts")
    if not all(isinstance(backend, dict) for backend in known["backends"].values()):
        raise _damaged(source, f'"backends" of {place} has something else than objects')
    if not all(isinstance(release, dict) for release in known["releases"]):
        raise _damaged(source, f'"releases" of {place} has something else than objects')
    if not _NAME.fullmatch(known["name"]):
        raise _damaged(source, f"the name of {place} is not canonical: {known['name']!r}")
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


def _damaged(source: str, problem: str) -> PluginError:
    return PluginError(
        f"the catalogue {printable(source)} is damaged: {problem}; download it again, or name another one with "
        f"--catalog or {VARIABLE}"
    )


def _read(source: str, key: str = "") -> bytes:
    """Return the text of a catalogue; with a key, only if its signature beside it was made with that key."""
    text = _content(source, "the catalogue")
    if key:
        require_signature(text, _content(f"{source}.sig", "the signature of the catalogue"), key, source)
    return text


def _content(source: str, what: str) -> bytes:
    try:
        return fetch.read(source)
    except fetch.Incomplete as error:
        raise _damaged(source, str(error)) from error
    except (OSError, ValueError) as error:
        raise PluginError(
            f"cannot read {what} {printable(source)}: {fetch.reason(error)}; name another one with --catalog or "
            f"{VARIABLE}"
        ) from error

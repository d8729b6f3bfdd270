"""The catalogue: which plugins exist, with their backends, platforms and releases, as static JSON.

The core contains a snapshot. The policy of the machine, `--catalog` or HAMI_CATALOG name another one, a file or an
address. Only the commands that search and install read an address; nothing else opens a connection.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hami._errors import PluginError
from hami._plugins import policy
from hami._plugins.plugin import CORE, normalised
from hami._text import printable

SNAPSHOT = Path(__file__).with_name("catalog.json")
VARIABLE = "HAMI_CATALOG"
FORMAT = 1
MAX_BYTES = 64 << 20  # a catalogue of some thousand plugins has a few megabytes
TIMEOUT_S = 20.0  # for the connection, and for each read


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
    releases: list[dict[str, Any]]  # each with "version" and "files", which have "name" and "sha256"
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
    fixed = policy.read().catalog
    if fixed and given not in (None, "", fixed):
        raise PluginError(f"{policy.PATH} names the catalogue of this machine, {fixed}: leave out --catalog")
    source = fixed or given or environment.get(VARIABLE) or str(SNAPSHOT)
    return parse(_read(source), source)


def load_local(environment: Mapping[str, str] = os.environ) -> Catalog:
    """Return the catalogue for error messages: never from an address, and the snapshot if it cannot be read.

    If the snapshot is damaged too, the catalogue is empty: `hami doctor` reports the file.
    """
    return _load_local(policy.read().catalog or environment.get(VARIABLE) or "")


def first_party() -> Catalog:
    """Return the snapshot, which has the plugins of this project."""
    return _load_local("")


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
def _load_local(source: str) -> Catalog:
    for candidate in (source if source and not _is_address(source) else "", str(SNAPSHOT)):
        try:
            if candidate:
                return parse(_read(candidate), candidate)
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
_TEXTS = ("pipelines", "devices", "commands", "requires", "platforms")


def _entry(fields: Any, place: str, source: str) -> CatalogEntry:
    if not isinstance(fields, dict):
        raise _damaged(source, f"{place} is not an object")
    known = {key: fields.get(key, kind()) for key, kind in _TYPES.items()}  # later formats may add keys
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
    if not known["name"] or known["name"] != normalised(known["name"]):
        raise _damaged(source, f"the name of {place} is not canonical: {known['name']!r}")
    return CatalogEntry(**known)


def _damaged(source: str, problem: str) -> PluginError:
    return PluginError(
        f"the catalogue {printable(source)} is damaged: {problem}; download it again, or name another one with "
        f"--catalog or {VARIABLE}"
    )


def _is_address(source: str) -> bool:
    return source.startswith(("http://", "https://"))


def _read(source: str) -> bytes:
    try:
        text = _download(source) if _is_address(source) else Path(source.removeprefix("file://")).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or error
        raise PluginError(
            f"cannot read the catalogue {printable(source)}: {reason}; name another one with --catalog or {VARIABLE}"
        ) from error
    if len(text) > MAX_BYTES:
        raise _damaged(source, f"it has more than {MAX_BYTES >> 20} MiB")
    return text


def _download(address: str) -> bytes:
    import http.client
    import urllib.request

    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as response:
            text: bytes = response.read(MAX_BYTES + 1)
            if response.length:  # fewer bytes came than the server announced
                raise _damaged(address, f"{response.length} bytes of it are missing")
    except http.client.HTTPException as error:
        raise OSError(f"the server's answer is not complete ({type(error).__name__})") from error
    return text

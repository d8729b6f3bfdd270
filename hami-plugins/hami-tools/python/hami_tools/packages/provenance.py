"""Looks for the attestations of files that are installed: beside them in a folder, in the index, in the catalogue."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin

from hami import PluginError
from hami.packages import Catalog, distributions

from hami_tools.packages import attestations, fetch
from hami_tools.packages.attestations import Origin, Publisher, Unverified
from hami_tools.packages.catalog import require_publisher
from hami_tools.packages.installers import Change, Installer, Sources
from hami_tools.packages.policy_rules import Rules

SUFFIX = ".provenance"  # of the file beside a wheel
TIMEOUT_S = 5.0  # an installation without attestations does not wait longer for an index
ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"


def checked(
    plugins: Sequence[Change], installer: Installer, sources: Sources, known: Catalog, rules: Rules
) -> dict[str, Origin]:
    """Return the files of plugins with what is served about their origin, by name of the plugin.

    Raises PluginError for the first plugin without an attestation that the policy of this machine accepts.
    """
    indexes = installer.indexes(sources) if plugins else []
    found = {each.name: _origin(each, indexes, sources.folder, known) for each in plugins if each.sha256}
    for name in [each.name for each in plugins] if rules.require_attestation is not None else ():
        publishers: list[Publisher] = []
        problem = "the installer does not say which file it takes; use pip, and an index with hashes"
        if name in found:
            try:
                publishers = attestations.publishers(found[name])
            except (Unverified, PluginError) as error:
                problem = str(error)
        require_publisher(rules, name, publishers, problem)
    return found


def _origin(change: Change, indexes: Sequence[str], folder: str, known: Catalog) -> Origin:
    try:
        text = _found(change, indexes, folder, known)
    except (OSError, ValueError, RecursionError) as error:
        return Origin(change.file, change.sha256, "", f"its attestation could not be read: {fetch.reason(error)}")
    where = "the folder" if folder else "the index"
    missing = "" if text else f"neither {where} nor the catalogue has an attestation of {change.file}"
    return Origin(change.file, change.sha256, text, missing)


def _found(change: Change, indexes: Sequence[str], folder: str, known: Catalog) -> str:
    if folder:
        beside = Path(folder, f"{change.file}{SUFFIX}")
        address = str(beside) if beside.is_file() else ""
    else:
        address = next(filter(None, (_served(index, change) for index in indexes)), "")
    address = address or _catalogued(change, known)
    return fetch.read(address, timeout_s=TIMEOUT_S).decode("utf-8") if address else ""


def _served(index: str, change: Change) -> str:
    """Return the address of the provenance that an index names for a file; empty if it names none."""
    page = f"{index.rstrip('/')}/{change.name}/"
    if not fetch.is_address(page):
        try:
            text = fetch.read(f"{page}index.html")
        except FileNotFoundError:  # another index has the plugin
            return ""
    else:
        try:
            text = fetch.read(page, {"Accept": ACCEPT}, TIMEOUT_S)
        except OSError as error:
            if getattr(error, "code", 0) == 404:
                return ""
            raise
    named = _of_json(text) if text.lstrip().startswith(b"{") else _of_html(text)
    return next((_beside(page, found) for file, found in named if file == change.file and found), "")


def _of_json(text: bytes) -> Iterator[tuple[str, str]]:
    """Yield the files of a page in JSON (PEP 691), each with the address of its provenance."""
    files = json.loads(text).get("files")
    for file in files if isinstance(files, list) else ():
        if isinstance(file, dict):
            yield str(file.get("filename", "")), str(file.get("provenance") or "")


def _of_html(text: bytes) -> list[tuple[str, str]]:
    """Return the files of a page in HTML (PEP 503), each with the address of its provenance."""
    found: list[tuple[str, str]] = []

    class Links(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            values = dict(attrs)
            if tag == "a":
                name = unquote(os.path.basename((values.get("href") or "").partition("#")[0]))
                found.append((name, values.get("data-provenance") or ""))

    Links().feed(text.decode("utf-8", "replace"))
    return found


def _catalogued(change: Change, known: Catalog) -> str:
    """Return the address of the provenance that the catalogue names for a file."""
    for file in known.files(change.name):
        if file.get("name") == change.file and file.get("sha256") == change.sha256 and file.get("provenance"):
            return _beside(known.source, str(file["provenance"]))
    return ""


def _beside(source: str, given: str) -> str:
    """Return an address that is relative to another; empty if a server names a file of this machine."""
    local = "://" not in source
    address = os.path.join(os.path.dirname(source), given) if local and "://" not in given else urljoin(source, given)
    return "" if fetch.is_address(source) and not fetch.is_address(address) else address


def record(found: dict[str, Origin], changes: Iterable[Change], folder: str) -> None:
    """Write the origins into the metadata of the distributions that were just installed."""
    importlib.invalidate_caches()
    for change in changes:
        for installed in distributions(name=change.name, path=[folder, *sys.path]):
            info: Any = getattr(installed, "_path", None)
            if change.name in found and info is not None and installed.version == change.new:
                attestations.write(Path(str(info)), found[change.name])
                break

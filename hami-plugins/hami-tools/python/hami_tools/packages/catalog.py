"""Reads the catalogue that the user or the administrator names, and checks plugins against the policy."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import hami
from hami import PluginError
from hami.cli import printable, visible
from hami.packages import (
    CATALOG_VARIABLE,
    CORE,
    SNAPSHOT,
    Catalog,
    CatalogEntry,
    Incomplete,
    PluginRecord,
    damaged_catalog,
    distributions,
    first_party,
    normalised,
    parse_catalog,
    policy,
)

from hami_tools.packages import fetch, policy_rules
from hami_tools.packages.attestations import Publisher
from hami_tools.packages.policy_rules import Rules
from hami_tools.packages.signatures import require_signature


def load(given: str | None = None, environment: Mapping[str, str] = os.environ) -> Catalog:
    """Return the catalogue of the machine's policy, else that is given, else that of HAMI_CATALOG, else the snapshot.

    Raises PluginError if it cannot be read or is not a catalogue, or if another one is given than that of the policy.
    """
    rules = policy_rules.read()
    fixed = rules.catalog
    if fixed and given not in (None, "", fixed):
        raise PluginError(f"{policy.PATH} names the catalogue of this machine, {fixed}: leave out --catalog")
    source = fixed or given or environment.get(CATALOG_VARIABLE) or str(SNAPSHOT)
    return parse_catalog(_read(source, rules.catalog_key), source)


def unlisted(known: Catalog) -> dict[str, CatalogEntry]:
    """Return the installed plugins that neither a catalogue nor the snapshot lists, from their metadata."""
    listed = {*known.plugins, *first_party().plugins, CORE}
    records: dict[str, list[PluginRecord]] = {}
    for record in hami.plugins():
        if record.version and normalised(record.distribution) not in listed:
            records.setdefault(record.distribution, []).append(record)
    return {normalised(name): _of_installed(name, of_it) for name, of_it in sorted(records.items())}


def _of_installed(name: str, records: Sequence[PluginRecord]) -> CatalogEntry:
    found = next(iter(distributions(name=name)))
    groups: dict[str, list[str]] = {}
    for entry in found.entry_points:
        groups.setdefault(entry.group, []).append(visible(entry.name))
    return CatalogEntry(
        name=normalised(name),
        summary=visible(found.metadata["Summary"] or ""),
        version="",
        backends={visible(backend): {} for record in records for backend in record.backends},
        pipelines=[visible(pipeline) for record in records for pipeline in record.pipelines],
        devices=groups.get("hami.devices", []),
        models=groups.get("hami.models", []),
        commands=[],
        requires=[visible(text) for text in found.requires or ()],
        platforms=[],
        abi={},
        releases=[],
        grade="",
    )


def require_grades(wanted: Iterable[str], changed: Iterable[str] = ()) -> None:
    """Raise PluginError for the first plugin that the policy of this machine refuses for its grade.

    `wanted` are plugins that the user names, `changed` any packages: those in the catalogue are plugins.
    """
    rules = policy_rules.read()
    if not rules.require_grade:
        return
    plugins = load().plugins
    enough = policy_rules.GRADES[policy_rules.GRADES.index(rules.require_grade) :]
    for name in dict.fromkeys([*wanted, *(name for name in changed if name in plugins)]):
        grade = plugins[name].grade if name in plugins else ""
        if name != CORE and grade not in enough:
            raise PluginError(
                f"{name} has {f'the grade {grade}' if grade else 'no grade'} in the catalogue {rules.catalog}, and "
                f"{policy.PATH} requires {rules.require_grade}; {policy.ASK}"
            )


def require_publisher(rules: Rules, distribution: str, publishers: Sequence[Publisher], problem: str) -> None:
    """Raise PluginError if a plugin is not attested by an accepted repository; `problem` says why by none."""
    if rules.require_attestation is None:
        return
    if not publishers:
        raise PluginError(
            f"{distribution} has no verified attestation, which {policy.PATH} requires: {problem}; {policy.ASK}"
        )
    found = [publisher.source for publisher in publishers]
    if rules.require_attestation and rules.require_attestation.isdisjoint(found):
        raise PluginError(
            f"{distribution} is published by {' and '.join(found)}, and {policy.PATH} accepts "
            f"{', '.join(sorted(rules.require_attestation))}; {policy.ASK}"
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
    except Incomplete as error:
        raise damaged_catalog(source, str(error)) from error
    except (OSError, ValueError) as error:
        raise PluginError(
            f"cannot read {what} {printable(source)}: {fetch.reason(error)}; name another one with --catalog or "
            f"{CATALOG_VARIABLE}"
        ) from error

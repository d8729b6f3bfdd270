"""Checks a configuration and converts it to the form that the core accepts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from hami import _core
from hami._config.document import RESERVED, Document, Entry
from hami._config.problems import Problems, got, quoted, show
from hami._config.values import Values

_SEGMENT = re.compile(r"[A-Za-z0-9_-]+")

Where = dict[tuple[str, str], str]
Keys = frozenset[tuple[str, str]]


class LoadedConfig(NamedTuple):
    """A configuration in the form that the core takes.

    `where` maps (node name, "global" or "", key) to file and line; key "" is the table itself.
    """

    nodes: dict[str, dict[str, Any]]
    globals: dict[str, Any]
    entrypoint: str | None  # None: the default
    dag_entrypoint: str | None
    providers: dict[str, str]
    requires: list[str]
    where: Where
    referenced: Keys = frozenset()  # keys that other values reference as ${key}
    unknown: Keys = frozenset()  # keys whose value could not be determined; the error is reported already
    files: tuple[str, ...] = ()  # what it was read from, files that others extend first
    written: Mapping[tuple[str, str], Any] = {}  # values before ${…} was replaced, where there was one


def read_document(document: Document, problems: Problems) -> LoadedConfig:
    """Return the configuration; its errors are added to `problems`."""
    return _Reader(document, problems).read()


class _Reader:
    def __init__(self, document: Document, problems: Problems) -> None:
        self.document = document
        self.problems = problems
        self.where: Where = {}
        nodes = document.nodes
        self.nodes = {name: section for name, section in nodes.items() if self.is_node_name(name)}
        self.entries: dict[str, dict[str, Entry]] = {name: section.entries for name, section in self.nodes.items()}
        for name in ("global", "providers"):
            self.entries[name] = document.sections[name].entries if name in document.sections else {}
        self.entries[""] = {key: entry for key, entry in document.top.items() if key in RESERVED}
        self.entries[""] |= {f"providers.{name}": entry for name, entry in self.entries.pop("providers").items()}
        self.values = Values(self.entries, problems)

    def read(self) -> LoadedConfig:
        for key, entry in self.document.top.items():
            if key not in RESERVED:
                self.unknown_top_level(key, entry)
        requires = self.requires()
        nodes = {name: self.keys(name) for name in self.nodes}
        if not self.document.nodes:
            place = self.document.files[-1] if self.document.files else ""
            self.problems.add('a configuration needs at least one node, as [node] with backend = "…"', place=place)
        config = LoadedConfig(
            nodes,
            self.global_keys(),
            self.text("entrypoint"),
            self.text("dag_entrypoint"),
            self.providers(),
            requires,
            self.where,
            frozenset(self.values.used),
            frozenset(self.values.unknown),
            tuple(self.document.files),
        )
        return config._replace(written=self.written())

    def is_node_name(self, name: object) -> bool:
        if isinstance(name, str) and _SEGMENT.fullmatch(name):
            return True
        headline = f"{quoted(name)} is not a valid node name: use letters, digits, _ and - only"
        self.problems.add(headline, str(name) or '""', place=self.document.sections[name].begin)
        return False

    def unknown_top_level(self, key: object, entry: Entry) -> None:
        near = _core.did_you_mean(_core.near_names(key, list(RESERVED)), quoted=True) if isinstance(key, str) else ""
        self.problems.add(
            f"unknown top-level key {quoted(key)}{near}",
            key,
            entry.value,
            place=entry.place,
            hint="a node is a table, [node]; a key for all nodes goes into [global]",
        )

    def global_keys(self) -> dict[str, Any]:
        if "global" in self.document.top:
            self.wrong_type("global", "is a table of keys for all nodes")
            return {}
        return self.keys("global") if "global" in self.document.sections else {}

    def keys(self, section: str) -> dict[str, Any]:
        if place := self.document.sections[section].begin:
            self.where[section, ""] = place
        made = {}
        for key, entry in self.entries[section].items():
            value = self.value(section, key, entry)
            if (section, key) not in self.values.unknown:
                made[key] = value
        return made

    def value(self, section: str, key: str, entry: Entry) -> Any:
        if entry.place:
            self.where[section, key] = entry.place
        return self.values.value(section, key)

    def text(self, key: str) -> str | None:
        entry = self.entries[""].get(key)
        if entry is None or entry.value is None:
            return None
        if not isinstance(entry.value, str):
            self.wrong_type(key, "is an expression")
            return None
        value = self.value("", key, entry)
        return None if value is None else str(value)

    def providers(self) -> dict[str, str]:
        if "providers" in self.document.top:
            self.wrong_type("providers", 'is a table, as ResizeMat = "hami-image"')
        made = {}
        for key, entry in self.entries[""].items():
            if not key.startswith("providers."):
                continue
            name = key.removeprefix("providers.")
            if isinstance(entry.value, str):
                made[name] = str(self.value("", key, entry))
            else:
                headline = f"providers: {quoted(name)} is given the name of a package, got {got(entry.value)}"
                self.problems.add(headline, key, entry.value, place=entry.place)
        return made

    def requires(self) -> list[str]:
        entry = self.entries[""].get("requires")
        listed = entry is not None and isinstance(entry.value, (list, tuple))
        if entry is None or (listed and not entry.value):
            return []
        from hami._plugins.requires import problem_with

        entries = self.value("", "requires", entry) if listed else None
        if entries is None:
            if ("", "requires") not in self.values.unknown:
                self.wrong_type("requires", 'is a list, as ["hami-trt>=0.3"]')
            return []
        for one in entries:
            wrong = problem_with(one)
            if wrong:
                self.problems.add(wrong, "requires", entries, place=entry.place, at=show(one))
        return [one for one in entries if isinstance(one, str)]

    def wrong_type(self, key: str, what: str) -> None:
        value, place = self.document.top[key]
        self.problems.add(f"{key} {what}, got {got(value)}", key, value, place=place)

    def written(self) -> dict[tuple[str, str], Any]:
        """Return the values of all keys that had a reference in them."""
        return {
            (section, key): entry.value
            for section, entries in self.entries.items()
            for key, entry in entries.items()
            if "${" in str(entry.value) and (section, key) not in self.values.unknown
        }

"""Validates a configuration and converts it to the form that the core accepts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hami._config.document import RESERVED, Document, Entry
from hami._config.problems import Problems, got, quoted, show
from hami._config.values import Values
from hami._errors import ConfigError
from hami._text import did_you_mean

MAX_LISTED = 20  # wrong keys; the others are counted
MAX_COMPARED = 1000  # keys that are compared with the names that HAMi knows
_SEGMENT = re.compile(r"[A-Za-z0-9_-]+")

Where = dict[tuple[str, str], str]
Keys = frozenset[tuple[str, str]]


class LoadedConfig(NamedTuple):
    """A configuration in the form that the core accepts.

    `where` maps (section, key) to "file:line". A section is the name of a node, "global", or "" for the top level; the
    key "" is the table itself.
    """

    nodes: dict[str, dict[str, Any]]
    globals: dict[str, Any]
    entrypoint: str | None  # None: the default
    dag_entrypoint: str | None
    providers: dict[str, str]
    requires: list[str]
    where: Where
    referenced: Keys = frozenset()  # keys that other values refer to as ${key}
    unknown: Keys = frozenset()  # keys whose value could not be determined; the error is reported already
    files: tuple[str, ...] = ()  # the files that it was read from; a file comes after those that it extends
    written: Mapping[tuple[str, str], Any] = {}  # values before ${…} was resolved, of keys that contain it
    folders: Mapping[tuple[str, str], bytes] = {}  # of the file that contains the value
    accept: Callable[[Any], None] | None = None  # gets the pipe before its first request, and may raise an error


def read_document(document: Document, problems: Problems) -> LoadedConfig:
    """Return the configuration; its errors are added to `problems`."""
    return _Reader(document, problems).read()


class _Reader:
    def __init__(self, document: Document, problems: Problems) -> None:
        self.document = document
        self.problems = problems
        self.where: Where = {}
        self.folders: dict[tuple[str, str], bytes] = {}
        nodes = document.nodes
        self.nodes = {name: section for name, section in nodes.items() if self.is_node_name(name)}
        self.entries: dict[str, dict[str, Entry]] = {name: section.entries for name, section in self.nodes.items()}
        for name in ("global", "providers"):
            self.entries[name] = document.sections[name].entries if name in document.sections else {}
        self.entries["global"] = {**self.entries["global"], **self.top_level_keys()}
        self.entries[""] = {key: entry for key, entry in document.top.items() if key in RESERVED}
        self.entries[""] |= {f"providers.{name}": entry for name, entry in self.entries.pop("providers").items()}
        self.values = Values(self.entries, problems)

    def read(self) -> LoadedConfig:
        requires = self.requires()
        nodes = {name: self.keys(name) for name in self.nodes}
        if not self.document.nodes:
            self.problems.add(
                'a configuration needs at least one node, such as [node] with backend = "…"', place=self.own_file
            )
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
        return config._replace(written=self.written(), folders=self.folders)

    @property
    def own_file(self) -> str:
        return self.document.files[-1] if self.document.files else ""

    def is_node_name(self, name: object) -> bool:
        if isinstance(name, str) and _SEGMENT.fullmatch(name):
            return True
        headline = f"{quoted(name)} is not a valid node name: use letters, digits, _ and - only"
        self.problems.add(headline, str(name) or '""', place=self.document.sections[name].begin)
        return False

    def top_level_keys(self) -> dict[str, Entry]:
        """Return the keys above the first table, which are keys of [global] too."""
        keys, mistakes = {}, []
        for key, entry in self.document.top.items():
            if key in self.entries["global"]:
                headline, hint = (
                    f"{quoted(key)} is given twice: above the first table and in [global]",
                    "remove one of them",
                )
                mistakes.append((headline, key, entry, hint))
            elif key not in RESERVED:
                keys[key] = entry
        for key in [key for key in keys if isinstance(key, str) and key != "node_entrypoint"][:MAX_COMPARED]:
            if near := did_you_mean(key, RESERVED, quoted=True):
                hint = "write a node as a table, [node], and a key for all nodes into [global]"
                mistakes.append((f"unknown top-level key {quoted(key)}{near}", key, keys.pop(key), hint))
        for headline, key, entry, hint in mistakes[:MAX_LISTED]:
            self.problems.add(headline, key, entry.value, place=entry.place, hint=hint)
        if len(mistakes) > MAX_LISTED:
            self.problems.add(f"{len(mistakes) - MAX_LISTED} more wrong top-level keys", place=self.own_file)
        return keys

    def global_keys(self) -> dict[str, Any]:
        if "global" in self.document.top:
            self.wrong_type("global", "must be a table with keys for all nodes")
            return {}
        return self.keys("global")

    def keys(self, section: str) -> dict[str, Any]:
        if section in self.document.sections and (place := self.document.sections[section].begin):
            self.where[section, ""] = place
        values = {}
        for key, entry in self.entries[section].items():
            value = self.value(section, key, entry)
            if key == "model":
                value = self.model_file(key, value, section, entry)
            if (section, key) not in self.values.unknown:
                values[key] = value
        return values

    def model_file(self, key: str, value: Any, section: str, entry: Entry) -> Any:
        """Return the model file of a folder whose layout a plugin knows; any other value as it is."""
        if not isinstance(value, (str, os.PathLike)) or not os.path.isdir(
            path := os.path.join(entry.folder, os.fsdecode(value))
        ):
            return value
        from hami._config.model_files import model_in

        try:
            return model_in(path) or value
        except ConfigError as error:
            self.problems.add(str(error), key, value, section=section, place=entry.place)
            self.values.unknown.add((section, key))
            return None

    def value(self, section: str, key: str, entry: Entry) -> Any:
        """Return the resolved value of a key, and record its place."""
        if entry.place:
            self.where[section, key] = entry.place
        if entry.folder:
            self.folders[section, key] = os.fsencode(entry.folder)
        return self.values.value(section, key)

    def text(self, key: str) -> str | None:
        entry = self.entries[""].get(key)
        if entry is None or entry.value is None:
            return None
        if not isinstance(entry.value, str):
            self.wrong_type(key, "must be an expression")
            return None
        value = self.value("", key, entry)
        return None if value is None else str(value)

    def providers(self) -> dict[str, str]:
        if "providers" in self.document.top:
            self.wrong_type("providers", 'must be a table such as ResizeMat = "hami-image"')
        packages = {}
        for key, entry in self.entries[""].items():
            if not key.startswith("providers."):
                continue
            name = key.removeprefix("providers.")
            if isinstance(entry.value, str):
                packages[name] = str(self.value("", key, entry))
            else:
                headline = f"the provider of {quoted(name)} must be the name of a package, got {got(entry.value)}"
                self.problems.add(headline, key, entry.value, place=entry.place)
        return packages

    def requires(self) -> list[str]:
        entry = self.entries[""].get("requires")
        is_list = entry is not None and isinstance(entry.value, (list, tuple))
        if entry is None or (is_list and not entry.value):
            return []
        from hami._plugins.requirements import problem_with

        entries = self.value("", "requires", entry) if is_list else None
        if entries is None:
            if ("", "requires") not in self.values.unknown:
                self.wrong_type("requires", 'must be a list such as ["hami-trt>=2.0"]')
            return []
        for requirement in entries:
            problem = problem_with(requirement)
            if problem:
                self.problems.add(problem, "requires", entries, place=entry.place, at=show(requirement))
        return [requirement for requirement in entries if isinstance(requirement, str)]

    def wrong_type(self, key: str, expected: str) -> None:
        value, place, _ = self.document.top[key]
        self.problems.add(f"{key} {expected}, got {got(value)}", key, value, place=place)

    def written(self) -> dict[tuple[str, str], Any]:
        """Return the unresolved values of all keys that contain a reference."""
        return {
            (section, key): entry.value
            for section, entries in self.entries.items()
            for key, entry in entries.items()
            if "${" in str(entry.value) and (section, key) not in self.values.unknown
        }

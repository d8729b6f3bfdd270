"""Checks a configuration as a dict and brings it into the form that the core takes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from hami import _core
from hami._errors import ConfigError

RESERVED = ("global", "providers", "requires", "extends", "entrypoint", "dag_entrypoint")
_SEGMENT = re.compile(r"[A-Za-z0-9_-]+")

Path = tuple[str, ...]
Where = dict[tuple[str, str], str]


class LoadedConfig(NamedTuple):
    """A configuration in the form that the core takes.

    `where` says of (node name, "global" or "", key) in which file and line it stands; key "" is the table itself.
    """

    nodes: dict[str, dict[str, Any]]
    globals: dict[str, Any]
    entrypoint: str | None  # None: the default
    dag_entrypoint: str | None
    providers: dict[str, str]
    requires: list[str]
    where: Where


def read_mapping(
    data: Mapping[str, Any], label: str = "", lines: Mapping[Path, int] | None = None
) -> tuple[LoadedConfig, list[Exception]]:
    """Return the configuration and everything that is wrong with it. `lines`: where each key stands in file `label`."""
    reader = _Reader(label, lines or {})
    return reader.read(data), reader.problems


class _Reader:
    def __init__(self, label: str, lines: Mapping[Path, int]) -> None:
        self.label = label
        self.lines = lines
        self.problems: list[Exception] = []
        self.where: Where = {}

    def read(self, data: Mapping[str, Any]) -> LoadedConfig:
        own = {key: value for key, value in data.items() if key not in RESERVED}
        nodes = self.nodes(own)
        if "extends" in data:
            self.problem(("extends",), f"hami-core {_core.__version__} does not know extends yet; write the keys out")
        return LoadedConfig(
            nodes,
            self.global_keys(data.get("global", {})),
            self.text(data, "entrypoint"),
            self.text(data, "dag_entrypoint"),
            self.providers(data.get("providers", {})),
            self.requires(data.get("requires", [])),
            self.where,
        )

    def nodes(self, own: Mapping[Any, Any]) -> dict[str, dict[str, Any]]:
        tables = {key: value for key, value in own.items() if isinstance(value, Mapping)}
        if own and not tables:
            return {"default": self.keys("default", (), own)}
        for key in own:
            if key not in tables:
                self.unknown_top_level(key)
        nodes = {}
        for name, table in tables.items():
            if not isinstance(name, str) or not _SEGMENT.fullmatch(name):
                self.problem((name,), f"{_quoted(name)} is no node name: letters, digits, _ and - only")
            else:
                nodes[name] = self.keys(name, (name,), table)
        if not own:
            self.problem((), 'a configuration needs at least one node, as [node] with backend = "…"')
        return nodes

    def unknown_top_level(self, key: object) -> None:
        near = _core.did_you_mean(_core.near_names(key, list(RESERVED)), quoted=True) if isinstance(key, str) else ""
        self.problem(
            (key,),
            f"unknown top-level key {_quoted(key)}{near}  "
            "(a node is a table, [node]; a key for all nodes goes into [global])",
        )

    def global_keys(self, table: Any) -> dict[str, Any]:
        if isinstance(table, Mapping):
            return self.keys("global", ("global",), table)
        self.problem(("global",), f"global is a table of keys for all nodes, got {_shown(table)}")
        return {}

    def keys(self, section: str, path: Path, table: Mapping[Any, Any]) -> dict[str, Any]:
        """Return the keys of one node, sub-tables flattened to "X.key", `init` under its other name."""
        if path in self.lines:
            self.where[section, ""] = self.place(path)
        result: dict[str, Any] = {}
        self.flatten(section, path, "", table, result)
        if "init" in result:
            if "node_entrypoint" in result:
                self.problem((*path, "init"), f"{_of(section)} has init and node_entrypoint, which are the same key")
            result["node_entrypoint"] = result.pop("init")
            if (section, "init") in self.where:
                self.where[section, "node_entrypoint"] = self.where.pop((section, "init"))
        return result

    def flatten(self, section: str, path: Path, prefix: str, table: Mapping[Any, Any], result: dict[str, Any]) -> None:
        for key, value in table.items():
            if not isinstance(key, str):
                self.problem(path, f"a key of {_of(section)} is not text: {_shown(key)}")
                continue
            full, place = prefix + key, (*path, key)
            if isinstance(value, Mapping):
                self.flatten(section, place, f"{full}.", value, result)
                continue
            if full in result:
                self.problem(place, f'"{full}" of {_of(section)} is given twice')
            if place in self.lines:
                self.where[section, full] = self.place(place)
            result[full] = self.value(value, section, full, place)

    def value(self, value: Any, section: str, key: str, place: Path) -> Any:
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if isinstance(value, str):
            reference = re.search(r"\$\{[^}]*\}?", value)
            if reference:
                self.problem(
                    place,
                    f'"{key}" of {_of(section)} has {reference.group()}, which hami-core {_core.__version__} '
                    "does not replace yet; write the value out",
                )
            return value
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if isinstance(value, (list, tuple)):
            return [self.value(item, section, key, place) for item in value]
        if hasattr(value, "__index__"):  # numpy's integers
            return int(value)
        self.problem(
            place, f'"{key}" of {_of(section)} takes text, numbers, booleans or lists of them, got {_shown(value)}'
        )
        return None

    def text(self, data: Mapping[str, Any], key: str) -> str | None:
        value = data.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            self.problem((key,), f"{key} is an expression, got {_shown(value)}")
            return None
        if (key,) in self.lines:
            self.where["", key] = self.place((key,))
        return value

    def providers(self, table: Any) -> dict[str, str]:
        if not isinstance(table, Mapping):
            self.problem(("providers",), f'providers is a table, as ResizeMat = "hami-image", got {_shown(table)}')
            return {}
        for name, distribution in table.items():
            if not isinstance(name, str) or not isinstance(distribution, str):
                self.problem(
                    ("providers", name),
                    f"providers: {_quoted(name)} is given the name of a package, got {_shown(distribution)}",
                )
        return {name: value for name, value in table.items() if isinstance(name, str) and isinstance(value, str)}

    def requires(self, entries: Any) -> list[str]:
        if not entries and isinstance(entries, (list, tuple)):
            return []
        from hami._requires import problem_with

        if not isinstance(entries, (list, tuple)):
            self.problem(("requires",), f'requires is a list, as ["hami-trt>=0.3"], got {_shown(entries)}')
            return []
        for entry in entries:
            wrong = problem_with(entry)
            if wrong:
                self.problem(("requires",), wrong)
        return [entry for entry in entries if isinstance(entry, str)]

    def problem(self, path: tuple[Any, ...], text: str) -> None:
        at = self.place(path)
        self.problems.append(ConfigError(f"{at}: {text}" if at else text))

    def place(self, path: tuple[Any, ...]) -> str:
        """Return "file:line" of a key, of the table around it where the key has none of its own, or ""."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.label}:{self.lines[path]}" if path else self.label


def _of(section: str) -> str:
    return "[global]" if section == "global" else f'node "{section}"'


def _quoted(name: object) -> str:
    return f'"{name}"' if isinstance(name, str) else repr(name)


def _shown(value: object) -> str:
    """Show a value short enough for a message, with its type."""
    if isinstance(value, str):
        return f'"{value}"' if len(value) <= 60 else f'"{value[:60]}…"'
    text = repr(value)
    return f"{type(value).__name__} {text}" if len(text) <= 60 and "\n" not in text else type(value).__name__

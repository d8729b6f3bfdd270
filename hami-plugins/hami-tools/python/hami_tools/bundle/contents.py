"""What a bundle takes from a configuration: its files and models, the plugins that it uses, and a file that joins them.

Files below the folder of the configuration keep their places. The file `bundle.toml` extends the configuration, and
names the new places of models from elsewhere.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import hami
import hami.config
from hami import ConfigError
from hami.cli import printable
from hami.packages import CORE, normalised

from hami_tools.bundle.boot.layout import problem_with_name

FOLDER = "config"
SOURCE = f"{FOLDER}/bundle.toml"
_PATHS = ("file", "path")  # types of parameters


class Contents:
    """The files of a configuration by their names in the bundle, and the names of the plugins that it uses."""

    def __init__(self, source: str, config: hami.config.LoadedConfig, include: Sequence[str] = ()) -> None:
        self._config = config
        self._moved: dict[tuple[str, str], Any] = {}  # new values, by node and key
        self.files: dict[str, str] = {}  # paths on this machine, by the name in the bundle
        self.plugins: set[str] = set()
        own = [os.path.realpath(path) for path in config.files if source.endswith(".toml") and os.path.isfile(path)]
        self._base = os.path.commonpath([os.path.dirname(path) for path in own]) if own else ""
        for path in (*own, *map(os.path.abspath, include)):
            if not self._is_below(path):
                raise ConfigError(f'--include takes files below the folder "{printable(self._base)}", got "{path}"')
            self._add(path, os.path.relpath(path, self._base))
        used = list(_backends(hami.config.describe(config)["nodes"]))
        for node, backend in used:
            self._add_plugin(node, backend)
        paths = _paths(used)
        for node, path in sorted(paths, key=lambda each: not self._is_below(each[1])):  # those with a place first
            self._add_path(node, path)
        self.text = self._joined(source, own)

    def _is_below(self, path: str) -> bool:
        return bool(self._base) and path.startswith(self._base.rstrip("/") + "/")

    def _add(self, path: str, name: str) -> None:
        """Add a file, or every file of a folder, under a name in the folder of the configuration."""
        if os.path.isdir(path):
            for entry in sorted(os.listdir(path)):
                self._add(os.path.join(path, entry), f"{name}/{entry}")
            return
        full = f"{FOLDER}/{name}"
        if not os.path.isfile(path) or full == SOURCE:
            raise ConfigError(f'"{printable(path)}" cannot be in a bundle: it must be a file, and not {SOURCE}')
        if problem := problem_with_name(full):
            raise ConfigError(f'"{printable(path)}" cannot be in a bundle: its name {problem}; rename it')
        self.files[full] = path

    def _add_plugin(self, node: str, backend: Any) -> None:
        distribution = backend["distribution"]
        if not distribution:
            raise ConfigError(
                f"the backend {backend['name']} of [{node}] is registered by a program, and a bundle has packages; "
                "make a plugin of it: hami new-plugin NAME"
            )
        if distribution != CORE:
            self.plugins.add(normalised(distribution))

    def _add_path(self, node: str, path: str) -> None:
        if self._is_below(path):
            self._add(path, os.path.relpath(path, self._base))
            return
        keys = [place for place in self._places(node) if self._is_at(*place, path)]
        if not keys:
            raise ConfigError(
                f'"{printable(path)}" of [{node}] is named inside an expression, and is not below the folder of the '
                "configuration: move it there, or give it a key of its own in the node"
            )
        name = f"models/{os.path.basename(path.rstrip('/'))}"
        while self.files.get(f"{FOLDER}/{name}", path) != path:
            name = f"models/_{name.removeprefix('models/')}"
        self._add(path, name)
        for place in keys:
            self._moved[place] = name

    def _places(self, node: str) -> Iterator[tuple[str, str]]:
        for section, entries in ((node, self._config.nodes[node]), ("global", self._config.globals)):
            yield from ((section, key) for key in entries)

    def _is_at(self, section: str, key: str, path: str) -> bool:
        value = (self._config.globals if section == "global" else self._config.nodes[section])[key]
        folder = os.fsdecode(self._config.folders.get((section, key), b""))
        return isinstance(value, str) and os.path.abspath(os.path.join(folder, value)) == path

    def _joined(self, source: str, own: Sequence[str]) -> str:
        """Return the text of the file that is opened."""
        base = source if hami.config.is_pipeline(source) else ""
        if own:
            base = os.path.relpath(own[-1], self._base)
        sections = {} if base else {name: dict(node) for name, node in self._config.nodes.items()}
        for (section, key), name in self._moved.items():
            sections.setdefault(section, {})[key] = name
        lines = [f"extends = {_toml(base)}"] if base else []
        for section, entries in sections.items():
            lines += ["", f"[{section}]", *(f"{_toml(key)} = {_toml(value)}" for key, value in entries.items())]
        return "\n".join([*lines, ""]).lstrip("\n")


def owners_of(source: str) -> set[str]:
    """Return the distributions that provide a packaged pipeline; none if the source is another one."""
    name = source.rpartition("::")[2]
    found = hami.plugins() if hami.config.is_pipeline(source) else ()
    return {normalised(plugin.distribution) for plugin in found if name in plugin.pipelines}


def _backends(nodes: Any) -> Iterator[tuple[str, Any]]:
    """Yield each node with each of its backends."""
    for name, node in nodes.items():
        waiting = list(node["backends"])
        while waiting:
            backend = waiting.pop(0)
            waiting += backend["children"]
            yield name, backend


def _paths(used: Sequence[tuple[str, Any]]) -> list[tuple[str, str]]:
    """Return the files and folders that the nodes use, apart from those that plugins provide as defaults.

    A backend inside another one may get the default of the outer one.
    """
    known = hami.backends()
    found: list[tuple[str, str, Any]] = []
    defaults: set[tuple[str, str]] = set()
    for node, backend in used:
        info = known.get(backend["class"]) or known.get(f"{backend['distribution']}::{backend['class']}")
        for param in (info and info.params) or ():
            name, value = param["name"], backend["params"].get(param["name"])
            if isinstance(param["default"], str):
                defaults.add((name, param["default"]))
            if param["type"] in _PATHS and value and os.path.exists(value):
                found.append((node, name, value))
    return [(node, os.path.abspath(value)) for node, name, value in found if (name, value) not in defaults]


def _toml(value: Any) -> str:
    """Return a value of a configuration as TOML, whose texts, numbers and lists are those of JSON."""
    return json.dumps(value, ensure_ascii=False)

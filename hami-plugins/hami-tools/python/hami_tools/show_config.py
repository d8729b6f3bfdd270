"""The command `hami show-config`: shows the effective configuration, with the source of every value."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import Any

import hami.config
from hami.cli import json_of, report, visible_lines
from hami.config import LoadedConfig, check_all, read_source, show

MAX_COLUMN = 60  # of the sources; longer lines have their source two spaces after the text

Line = tuple[str, str]  # the text and its source


def show_config(arguments: argparse.Namespace) -> int:
    """Print the effective configuration, and its problems to standard error; return 1 if there are problems."""
    config, problems = read_source(arguments.source, arguments.set, arguments.imports)
    problems += check_all(config)
    if config.nodes:
        effective = describe(config)
        if arguments.json:
            print(json_of(effective))
        else:
            print(visible_lines("\n".join(_page(effective))))
    for problem in problems:
        report(problem)
    return 1 if problems else 0


def describe(config: LoadedConfig) -> dict[str, Any]:
    """Return every key, and every parameter of every backend, with its value and the source of the value."""
    explained = hami.config.explain(config)
    sources = _Sources(config)
    entry = explained["entrypoint"]
    default_key = "dag_entrypoint" if len(config.nodes) > 1 else "entrypoint"
    return {
        "files": list(config.files),
        "requires": {"value": config.requires, "from": sources.of("", "requires")} if config.requires else None,
        "providers": {
            name: sources.key("", f"providers.{name}", package) for name, package in config.providers.items()
        },
        "global": sources.keys("global", config.globals),
        "entrypoint": {
            "key": entry["key"] or default_key,
            "value": entry["expression"],
            "from": sources.of("", entry["key"]) if entry["key"] else "default",
            "backends": [_backend(backend, sources, "global") for backend in entry["backends"]],
        },
        "nodes": {
            name: {
                "from": sources.of(name, ""),
                "keys": _keys_of_node(name, keys, explained["nodes"][name], sources),
                "backends": [_backend(backend, sources, name) for backend in explained["nodes"][name]["backends"]],
            }
            for name, keys in config.nodes.items()
        },
    }


class _Sources:
    """Looks up where the value of a key comes from."""

    def __init__(self, config: LoadedConfig) -> None:
        self.config = config

    def of(self, section: str, key: str) -> str:
        return self.config.where.get((section, key), "command line")

    def keys(self, section: str, keys: dict[str, Any]) -> dict[str, Any]:
        return {key: self.key(section, key, value) for key, value in keys.items()}

    def key(self, section: str, key: str, value: Any) -> dict[str, Any]:
        entry = {"value": value, "from": self.of(section, key)}
        if (section, key) in self.config.written:
            entry["written"] = self.config.written[section, key]
        return entry


def _keys_of_node(name: str, keys: dict[str, Any], part: dict[str, Any], sources: _Sources) -> dict[str, Any]:
    entries = sources.keys(name, keys)
    if not part["key"]:
        entries["node_entrypoint"] = {"value": part["expression"], "from": "default"}
    return entries


def _backend(backend: dict[str, Any], sources: _Sources, section: str) -> dict[str, Any]:
    params = [_param(param, sources, section) for param in backend["params"]]
    return {**backend, "params": params}


def _param(param: dict[str, Any], sources: _Sources, section: str) -> dict[str, Any]:
    origin, key = param["from"], param["key"]
    described = {"name": param["name"], "value": param["value"], "text": param["text"], "from": origin}
    if origin == "node":
        described["from"] = sources.of(section, key)
    elif origin == "global":
        described["from"] = f"[global], {sources.of('global', key)}"
    elif origin == "generated":
        described["from"] = "generated backend"
    elif origin == "parent":
        described["from"] = "backend around it"
    if key not in ("", param["name"]):
        described["from"] = f"{show(key)}, {described['from']}"
    return described


def _page(effective: dict[str, Any]) -> Iterator[str]:
    *bases, own = effective["files"] or ["command line"]
    yield f"# {own}" + (f", which extends {', '.join(reversed(bases))}" if bases else "")
    entry = effective["entrypoint"]
    lines = [(f"{entry['key']} = {show(entry['value'])}", entry["from"]), *_tree(entry["backends"])]
    if effective["requires"]:
        lines.append((f"requires = {show(effective['requires']['value'])}", effective["requires"]["from"]))
    for name, package in effective["providers"].items():
        lines.append((f"providers.{name} = {show(package['value'])}", package["from"]))
    yield from _in_columns(lines)
    if effective["global"]:
        yield from ["", *_in_columns([("[global]", ""), *_keys(effective["global"])])]
    for name, node in effective["nodes"].items():
        yield from ["", *_in_columns([(f"[{name}]", node["from"]), *_keys(node["keys"])])]
        yield from _in_columns(_tree(node["backends"]))


def _keys(keys: dict[str, Any]) -> Iterator[Line]:
    for key, entry in keys.items():
        written = f", written {show(entry['written'])}" if "written" in entry else ""
        yield f"  {key} = {show(entry['value'])}", entry["from"] + written


def _tree(backends: Iterable[dict[str, Any]]) -> Iterator[Line]:
    for backend in backends:
        margin = "  " * (backend["depth"] + 1)
        owner = "" if backend["owner"] == "hami-core" else f"  ({backend['owner'] or 'this process'})"
        yield f"{margin}{backend['name']}{owner}", "runs with the backend before it" if backend["absorbed"] else ""
        for param in backend["params"]:
            name = f"{param['name']} = " if param["name"] else ""
            yield f"{margin}    {name}{param['text']}", param["from"]


def _in_columns(lines: Iterable[Line]) -> Iterator[str]:
    table = list(lines)
    width = max((len(left) for left, _ in table if len(left) <= MAX_COLUMN), default=0)
    for left, right in table:
        yield f"{left.ljust(width)}  {right}".rstrip()

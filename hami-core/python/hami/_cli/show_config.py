"""The command `hami show-config`: the configuration that counts, with the source of every value."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import Any

from hami import _core
from hami._cli.main import report
from hami._cli.show import json_of
from hami._cli.source import check_all, read_source
from hami._config.problems import show
from hami._config.reader import LoadedConfig

WIDEST = 60  # column of the sources

Line = tuple[str, str]  # the text and its source


def show_config(arguments: argparse.Namespace) -> int:
    """Print the effective configuration; return 1 if something is wrong with it, which goes to standard error."""
    config, problems = read_source(arguments.source, arguments.set, arguments.imports)
    problems += check_all(config)
    if config.nodes:
        effective = describe(config)
        if arguments.json:
            print(json_of(effective))
        else:
            print("\n".join(_page(effective)))
    for problem in problems:
        report(problem)
    return 1 if problems else 0


def describe(config: LoadedConfig) -> dict[str, Any]:
    """Return every key and every parameter of every backend, each with its value and where that is from."""
    explained = _core.explain(config)
    sources = _Sources(config)
    entry = explained["entrypoint"]
    several = "dag_entrypoint" if len(config.nodes) > 1 else "entrypoint"
    return {
        "files": list(config.files),
        "requires": {"value": config.requires, "from": sources.of("", "requires")} if config.requires else None,
        "providers": {
            name: sources.key("", f"providers.{name}", package) for name, package in config.providers.items()
        },
        "global": sources.keys("global", config.globals),
        "entrypoint": {
            "key": entry["key"] or several,
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
    def __init__(self, config: LoadedConfig) -> None:
        self.config = config

    def of(self, section: str, key: str) -> str:
        return self.config.where.get((section, key), "command line")

    def keys(self, section: str, keys: dict[str, Any]) -> dict[str, Any]:
        return {key: self.key(section, key, value) for key, value in keys.items()}

    def key(self, section: str, key: str, value: Any) -> dict[str, Any]:
        made = {"value": value, "from": self.of(section, key)}
        if (section, key) in self.config.written:
            made["written"] = self.config.written[section, key]
        return made


def _keys_of_node(name: str, keys: dict[str, Any], part: dict[str, Any], sources: _Sources) -> dict[str, Any]:
    made = sources.keys(name, keys)
    if not part["key"]:
        made["node_entrypoint"] = {"value": part["expression"], "from": "default"}
    return made


def _backend(backend: dict[str, Any], sources: _Sources, section: str) -> dict[str, Any]:
    params = [_param(param, sources, section) for param in backend["params"]]
    return {**backend, "params": params}


def _param(param: dict[str, Any], sources: _Sources, section: str) -> dict[str, Any]:
    origin, key = param["from"], param["key"]
    made = {"name": param["name"], "value": param["value"], "text": param["text"], "from": origin}
    if origin == "node":
        made["from"] = sources.of(section, key)
    elif origin == "global":
        made["from"] = f"[global], {sources.of('global', key)}"
    elif origin == "generated":
        made["from"] = "generated backend"
    if key not in ("", param["name"]):
        made["from"] = f"{show(key)}, {made['from']}"
    return made


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
        yield f"{margin}{backend['name']}{owner}", ""
        for param in backend["params"]:
            name = f"{param['name']} = " if param["name"] else ""
            yield f"{margin}    {name}{param['text']}", param["from"]


def _in_columns(lines: Iterable[Line]) -> Iterator[str]:
    table = list(lines)
    width = max((len(left) for left, _ in table if len(left) <= WIDEST), default=0)
    for left, right in table:
        yield f"{left.ljust(width)}  {right}".rstrip()

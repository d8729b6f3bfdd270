"""The commands `hami search` and `hami show`: what the catalogue knows about plugins and their backends."""

from __future__ import annotations

import argparse
import os
from typing import Any

from hami._cli.show import aligned, json_of, short
from hami._cli.terminal import print_table
from hami._errors import PluginError
from hami._packages.installers import installed_version
from hami._plugins import catalog
from hami._plugins.catalog import CatalogEntry
from hami._plugins.manager import installed
from hami._plugins.messages import install_command
from hami._plugins.plugin import normalised
from hami._suggestions import did_you_mean
from hami._text import printable


def search(arguments: argparse.Namespace) -> int:
    """List the plugins that match a word; exit with 1 if there are none."""
    known = catalog.load(arguments.catalog)
    word = arguments.word or ""
    found = {name: matches for name, plugin in known.plugins.items() if (matches := _matches(plugin, word)) is not None}
    if arguments.json:
        print(json_of([_facts(known.plugins[name]) for name in found]))
    elif found:
        print_table(
            [
                [name, installed_version(name) or "not installed", ", ".join(backends) or known.plugins[name].summary]
                for name, backends in found.items()
            ],
            ["plugin", "installed", "provides"],
        )
    else:
        near = did_you_mean(word, [*known.plugins, *known.backends()])
        print(f'nothing in the catalogue matches "{word}"{near or "; list all: hami search"}')
    return 0 if found else 1


def _matches(plugin: CatalogEntry, word: str) -> list[str] | None:
    """Return the backends and pipelines that match, all of them if the plugin itself does; None for no match."""
    names = [*plugin.backends, *plugin.pipelines]
    sought = word.lower()
    if sought in plugin.name or sought in plugin.summary.lower() or normalised(word) == plugin.name:
        return names
    about = {name: f"{name} {plugin.backends.get(name, {}).get('summary', '')}".lower() for name in names}
    return [name for name in names if sought in about[name]] or None


def show(arguments: argparse.Namespace) -> int:
    """Describe one plugin, by its name or that of one of its backends or pipelines; or a file that a plugin reads."""
    if os.path.isfile(arguments.name):
        return _show_file(arguments)
    known = catalog.load(arguments.catalog)
    name = arguments.name
    owners = known.backends().get(name) or known.pipelines().get(name) or [normalised(name)]
    plugins = [known.plugins[owner] for owner in owners if owner in known.plugins]
    if not plugins:
        near = did_you_mean(name, [*known.plugins, *known.backends()])
        raise PluginError(f'the catalogue has no plugin or backend "{name}"{near or "; list all: hami search"}')
    if arguments.json:
        print(json_of([_facts(plugin) for plugin in plugins]))
    else:
        print("\n\n".join(_description(plugin) for plugin in plugins))
    return 0


def _show_file(arguments: argparse.Namespace) -> int:
    """Print what each plugin says about a file."""
    found = {}
    for plugin, hook in installed.hook("hami_show_file"):
        for facts in filter(None, hook(path=os.path.abspath(arguments.name))):
            found[f"{plugin.distribution} {plugin.version}"] = facts
    if not found:
        raise PluginError(f'no installed plugin reads "{printable(arguments.name)}"; hami plugins lists them')
    if arguments.json:
        print(json_of(found))
    else:
        for name, facts in found.items():
            print("\n".join([f"{printable(arguments.name)}, read by {name}", *_lines(facts)]))
    return 0


def _lines(facts: dict[str, Any]) -> list[str]:
    """Return a row for each fact, and one for each value of a list."""
    rows = []
    for name, value in facts.items():
        values = value if isinstance(value, list) else [value]
        rows += [[f"  {name if at == 0 else ''}", short(each)] for at, each in enumerate(values)]
    return aligned(rows)


def _facts(plugin: CatalogEntry) -> dict[str, Any]:
    return {**plugin._asdict(), "installed": installed_version(plugin.name) or None}


def _description(plugin: CatalogEntry) -> str:
    installed = installed_version(plugin.name)
    facts = {
        "newest": plugin.version,
        "grade": plugin.grade,
        "installed": installed or f"no: {install_command(plugin.name)}",
        "platforms": ", ".join(plugin.platforms),
        "plugin ABI": " to ".join(filter(None, [plugin.abi.get("min"), plugin.abi.get("built")])),
        "requires": ", ".join(plugin.requires),
        "pipelines": ", ".join(plugin.pipelines),
        "devices": ", ".join(plugin.devices),
        "commands": ", ".join(f"hami {command}" for command in plugin.commands),
    }
    rows = [[f"  {name}", value] for name, value in facts.items() if value]
    backends = [[f"  {name}", _about(about)] for name, about in plugin.backends.items()]
    lines = [f"{plugin.name}  {plugin.summary}", *aligned(rows)]
    return "\n".join([*lines, *(["backends", *aligned(backends)] if backends else [])])


def _about(backend: dict[str, Any]) -> str:
    params = [str(param.get("text", "")) for param in backend.get("params", ()) if isinstance(param, dict)]
    return "  ".join(filter(None, [str(backend.get("summary", "")), f"({', '.join(params)})" if params else ""]))

"""The command `hami search`, and `hami show NAME`: the plugins in the catalogue, and their backends."""

from __future__ import annotations

import argparse
from typing import Any

from hami import ConfigError
from hami.cli import aligned, did_you_mean, json_of, print_table
from hami.packages import CatalogEntry, install_command, normalised

from hami_tools.packages import catalog
from hami_tools.packages.installers import installed_version


def search(arguments: argparse.Namespace) -> int:
    """List the plugins that match a word, installed ones included; exit with 1 if there are none."""
    known = catalog.load(arguments.catalog)
    known = known._replace(plugins={**known.plugins, **catalog.unlisted(known)})
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
        near = did_you_mean(word, [*known.plugins, *known.owners("backends")])
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


def show(name: str) -> tuple[list[dict[str, Any]], str]:
    """Return what `hami show` prints about a plugin, by its name or that of one of its backends or pipelines."""
    known = catalog.load()
    unlisted = catalog.unlisted(known)
    known = known._replace(plugins={**known.plugins, **unlisted})
    owners = known.owners("backends").get(name) or known.owners("pipelines").get(name) or [normalised(name)]
    plugins = [known.plugins[owner] for owner in owners if owner in known.plugins]
    if not plugins:
        near = did_you_mean(name, [*known.plugins, *known.owners("backends")])
        raise ConfigError(f'the catalogue has no plugin or backend "{name}"{near or "; list all: hami search"}')
    return [_facts(plugin) for plugin in plugins], "\n\n".join(
        _description(plugin, listed=plugin.name not in unlisted) for plugin in plugins
    )


def _facts(plugin: CatalogEntry) -> dict[str, Any]:
    return {**plugin._asdict(), "installed": installed_version(plugin.name) or None}


def _description(plugin: CatalogEntry, *, listed: bool) -> str:
    installed = installed_version(plugin.name)
    facts = {
        "catalogue": "" if listed else "not in it; this is what its metadata say",
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

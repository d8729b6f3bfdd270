"""The command `hami show`: what plugins say about a file, or about another name."""

from __future__ import annotations

import argparse
import os
from typing import Any

from hami._cli.show import aligned, json_of, short
from hami._errors import PluginError
from hami._plugins.manager import installed
from hami._text import printable


def show(arguments: argparse.Namespace) -> int:
    """Print what each plugin says about a file; if it is not one, what the first plugin says about the name."""
    if os.path.isfile(arguments.name):
        return _show_file(arguments)
    for _, hook in installed.hook("hami_show_name"):
        for facts, text in hook(name=arguments.name):
            print(json_of(facts) if arguments.json else text)
            return 0
    raise PluginError(
        f'there is no file "{printable(arguments.name)}"; to show a plugin of the catalogue: '
        'pip install "hami-core[tools]"'
    )


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

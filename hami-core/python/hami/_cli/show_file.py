"""The command `hami show`: what plugins say about a file, or about another name."""

from __future__ import annotations

import argparse
import os
from typing import Any

from hami._cli.show import aligned, json_of, short
from hami._config.model_files import model_file
from hami._errors import ConfigError, PluginError
from hami._text import printable


def show(arguments: argparse.Namespace) -> int:
    """Print what each plugin says about a file; if it is not one, what the first plugin says about the name."""
    from hami._plugins.manager import installed

    if os.path.isfile(arguments.name):
        return _show_file(arguments)
    if model_file(arguments.name):
        raise ConfigError(f'the model file "{printable(arguments.name)}" does not exist')
    for record, hook in installed.hook("hami_show_name"):
        about = f'"{printable(arguments.name)}"'
        for facts, text in installed.answer(record, hook, "hami_show_name", about, name=arguments.name):
            print(json_of(facts) if arguments.json else text)
            return 0
    raise PluginError(
        f'there is no file "{printable(arguments.name)}"; to show a plugin of the catalogue: '
        'pip install "hami-core[tools]"'
    )


def _show_file(arguments: argparse.Namespace) -> int:
    found = describe_file(arguments.name)
    if arguments.providers:
        _ask(found, "hami_show_providers", arguments.name)
    if not found:
        raise PluginError(f'no installed plugin reads "{printable(arguments.name)}"; hami plugins lists them')
    print(json_of(found) if arguments.json else "\n".join(lines_of_file(arguments.name, found)))
    return 0


def describe_file(path: str, question: str = "hami_show_file") -> dict[str, dict[str, Any]]:
    """Return what each plugin answers to a hook about a file, by "distribution version"."""
    found: dict[str, dict[str, Any]] = {}
    failures = _ask(found, question, path)
    if len(failures) == len(found) == 1:
        raise failures[0]
    return found


def _ask(found: dict[str, dict[str, Any]], question: str, path: str) -> list[Exception]:
    """Add what each plugin answers about a file to `found`; return the errors, which are added too."""
    from hami._plugins.manager import installed
    from hami._plugins.messages import describe_exception

    failures = []
    for plugin, hook in installed.hook(question):
        name = f"{plugin.distribution} {plugin.version}"
        try:
            for facts in filter(None, hook(path=os.path.abspath(path))):
                found[name] = {**found.get(name, {}), **facts}
        except Exception as error:  # one plugin must not hide what the others say
            failures.append(error)
            found[name] = {**found.get(name, {}), "error": describe_exception(error)}
    return failures


def lines_of_file(path: str, found: dict[str, dict[str, Any]]) -> list[str]:
    """Return the lines that show what plugins say about a file."""
    lines = []
    for name, facts in found.items():
        lines += [f"{printable(path)}, read by {name}", *_lines(facts)]
    return lines


def _lines(facts: dict[str, Any]) -> list[str]:
    """Return a row for each fact, and one for each value of a list."""
    rows = []
    for name, value in facts.items():
        values = value if isinstance(value, list) else [value]
        rows += [[f"  {name if at == 0 else ''}", short(each)] for at, each in enumerate(values)]
    return aligned(rows)

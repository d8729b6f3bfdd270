"""The command `hami check`: lists every problem of a configuration."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hami import _core
from hami._cli.source import check_all, read_source
from hami._config.reader import LoadedConfig
from hami._errors import ConfigError, Error
from hami._plugins.manager import installed
from hami._plugins.messages import describe_exception
from hami._text import printable, visible_lines

if TYPE_CHECKING:
    from hami.observe.description import BackendDescription


def check(arguments: argparse.Namespace) -> int:
    """Print every problem; return 1 if there are any."""
    problems: list[Exception] = []
    remarks: list[str] = []
    nodes = 0
    try:
        config, problems = read_source(arguments.source, arguments.set, arguments.imports)
        nodes = len(config.nodes)
        problems += check_all(config)
        remarks = [] if problems else _findings(config, "hami_findings")
        if arguments.invariance and not problems:
            no_model = "no node runs a model whose rows a plugin can compare"
            remarks += _findings(config, "hami_invariance") or [no_model]
    except Error as error:
        if arguments.traceback:
            raise
        problems += error.problems if isinstance(error, ConfigError) else [error]
    if arguments.json:
        found = [{"type": type(problem).__name__, "message": str(problem)} for problem in problems]
        print(
            json.dumps({"source": printable(arguments.source), "nodes": nodes, "problems": found, "findings": remarks})
        )
    elif problems:
        print(visible_lines("\n\n".join(str(problem) for problem in problems)))
        print(f"\n{_count(len(problems), 'problem')} in {printable(arguments.source)}")
    else:
        print("\n".join([f"{printable(arguments.source)}: no problems, {_count(nodes, 'node')}", *remarks]))
    return 1 if problems else 0


def _findings(config: LoadedConfig, name_of_hook: str) -> list[str]:
    """Return what the plugins say about the backends of each node, without building the pipe."""
    if not config.nodes:
        return []
    lines = []
    for name, node in _core.describe(config)["nodes"].items():
        for backend in _all_backends(node["backends"]):
            owner = backend["distribution"]
            for plugin, hook in installed.hook(name_of_hook, {owner} if owner else ()):
                try:
                    found = [
                        text for texts in hook(backend=backend["class"], params=backend["params"]) for text in texts
                    ]
                except Exception as error:  # one plugin must not hide what the others say
                    found = [f"{name_of_hook} of {plugin.distribution}: {describe_exception(error)}"]
                lines += [f"{name}: {line}" for line in found]
    return lines


def _all_backends(backends: Sequence[BackendDescription]) -> Iterator[BackendDescription]:
    for backend in backends:
        yield backend
        yield from _all_backends(backend["children"])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"

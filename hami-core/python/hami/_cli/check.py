"""The command `hami check`: lists every problem of a configuration."""

from __future__ import annotations

import argparse
import json

from hami._cli.source import check_all, read_source
from hami._errors import ConfigError, Error
from hami._text import printable


def check(arguments: argparse.Namespace) -> int:
    """Print every problem; return 1 if there are any."""
    problems: list[Exception] = []
    nodes = 0
    try:
        config, problems = read_source(arguments.source, arguments.set, arguments.imports)
        nodes = len(config.nodes)
        problems += check_all(config)
    except Error as error:
        if arguments.traceback:
            raise
        problems += error.problems if isinstance(error, ConfigError) else [error]
    if arguments.json:
        found = [{"type": type(problem).__name__, "message": str(problem)} for problem in problems]
        print(json.dumps({"source": printable(arguments.source), "nodes": nodes, "problems": found}))
    elif problems:
        print("\n\n".join(str(problem) for problem in problems))
        print(f"\n{_count(len(problems), 'problem')} in {printable(arguments.source)}")
    else:
        print(f"{printable(arguments.source)}: no problems, {_count(nodes, 'node')}")
    return 1 if problems else 0


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"

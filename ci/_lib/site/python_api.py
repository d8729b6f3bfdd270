"""The pages about the Python interface and the command line, from the sources of the package."""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

PACKAGE = Path("hami-core", "python", "hami")
TOOLS = Path("hami-plugins", "hami-tools", "python", "hami_tools")
API_PLACE = "reference/python-api.md"
COMMANDS_PLACE = "reference/command-line-help.md"
WIDTH = 82  # characters of a line of help

GROUPS = {
    "Pipes": (
        "pipe",
        "Pipe",
        "backends",
        "plugins",
    ),
    "Backends": (
        *("Backend", "register", "generate", "Request", "DictView", "BackendHandle", "scatter", "scattered"),
        *("Key", "Alias", "Duration", "ByteSize", "FilePath"),
    ),
    "Values": (
        *("Tensor", "to_numpy", "to_like", "TypedDict", "Event", "Queue", "RequestStore"),
        *("Opaque", "Device"),
    ),
    "Native code": ("register_plugin", "get_include", "allow_library", "check_library"),
}
TOP = """\
# Python API

Every public name of the module `hami`, generated from its docstrings. [Requests](requests.md) describes calls, errors
and timeouts, [types](types.md) the values of requests, and [write a backend](../howto/write-a-backend.md) the interface
of backends.
"""


def api_page(root: Path) -> str:
    """Return the page of the Python API: one directive of mkdocstrings for each public name."""
    names, errors = public_names(root), error_names(root)
    listed = {name for group in GROUPS.values() for name in group}
    groups = {heading: [name for name in group if name in names] for heading, group in GROUPS.items()}
    others = [name for name in names if name not in listed and name not in errors and not name.startswith("_")]
    groups |= {"Other names": others} if others else {}
    groups["Errors"] = [name for name in names if name in errors]
    sections = [f"\n## {heading}\n{''.join(map(_directive, group))}" for heading, group in groups.items()]
    sections.append("\n## Statistics\n\n::: hami.observe.NodeStats\n\n::: hami.observe.LaneStats\n")
    return f"{TOP}{''.join(sections)}\n## Tests of backends\n\n::: hami.testing\n    options:\n      heading_level: 3\n"


def _directive(name: str) -> str:
    inherited = "    options:\n      inherited_members: true\n" if name == "Pipe" else ""
    return f"\n::: hami.{name}\n{inherited}"


def public_names(root: Path) -> list[str]:
    """Return `hami.__all__`, read from the source."""
    for node in _parsed(root / PACKAGE / "__init__.py").body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise ValueError("hami/__init__.py has no __all__")


def error_names(root: Path) -> set[str]:
    """Return the names of the exceptions of the package."""
    return {node.name for node in _parsed(root / PACKAGE / "_errors.py").body if isinstance(node, ast.ClassDef)}


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def commands_page(root: Path) -> str:
    """Return the page with the help of every command."""
    parser = argument_parser(root)
    sections = [
        "# Options of the commands\n\nWhat `--help` prints. [Command line](command-line.md) explains the commands.\n\n",
        f"## hami\n\n{_help(parser)}",
    ]
    sections += [f"\n## hami {name}\n\n{_help(command)}" for name, command in sorted(_commands(parser).items())]
    return "".join(sections)


def argument_parser(root: Path) -> argparse.ArgumentParser:
    """Return the parser of the command `hami` with the commands of hami-tools. The core need not be compiled."""
    with _packages_without_core(root):
        parser: argparse.ArgumentParser
        parser, commands = importlib.import_module("hami._cli.main")._parser()
        sys.modules["hami.cli"] = importlib.import_module("hami._cli.arguments")
        importlib.import_module("hami_tools.commands").add_commands(commands)
    return parser


@contextmanager
def _packages_without_core(root: Path) -> Iterator[None]:
    """Let `hami._cli` and `hami_tools` be imported from the sources, without what importing the packages imports."""
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in ("hami", "hami_tools")}
    for name in before:
        del sys.modules[name]
    for name, place in (("hami", PACKAGE), ("hami._cli", PACKAGE / "_cli"), ("hami_tools", TOOLS)):
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__path__ = [str(root / place)]
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] in ("hami", "hami_tools")]:
            del sys.modules[name]
        sys.modules.update(before)


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    raise ValueError("the command line has no commands")


def _help(parser: argparse.ArgumentParser) -> str:
    with _plain_terminal():
        return f"```text\n{parser.format_help().rstrip()}\n```\n"


@contextmanager
def _plain_terminal() -> Iterator[None]:
    """Let argparse write lines of one width without colours."""
    before = {name: os.environ.get(name) for name in ("COLUMNS", "NO_COLOR")}
    os.environ.update(COLUMNS=str(WIDTH), NO_COLOR="1")
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

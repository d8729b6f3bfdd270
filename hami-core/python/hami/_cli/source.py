"""Obeys the arguments SOURCE, --set, --import and --trace of the command line."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hami import _core
from hami._config import read
from hami._config.document import RESERVED, Document, Entry, Section
from hami._config.reader import LoadedConfig
from hami._errors import ConfigError
from hami._plugins.messages import describe_exception
from hami._runtime.pipe import Pipe
from hami._text import printable


def read_source(
    source: str, settings: Sequence[str] = (), imports: Sequence[str] = ()
) -> tuple[LoadedConfig, list[Exception]]:
    """Import modules, and return the configuration with the settings applied, and its problems."""
    for name in imports:
        try:
            _import(name)
        except (ConfigError, KeyboardInterrupt):
            raise
        except BaseException as error:  # a script may even call sys.exit
            raise ConfigError(f"--import {printable(name)}: {describe_exception(error)}") from error

    def apply_settings(document: Document) -> None:
        for setting in settings:
            _apply(document, setting)

    return read(source, change=apply_settings)


def require_node(config: LoadedConfig, arguments: argparse.Namespace) -> None:
    """Raise ConfigError if --node names no node: a pipeline of one node would not read it."""
    if arguments.node and arguments.node not in config.nodes:
        nodes = ", ".join(map(printable, config.nodes))
        raise ConfigError(f'--node takes a node of the pipeline, which has {nodes}; got "{printable(arguments.node)}"')


def _apply(document: Document, setting: str) -> None:
    key, equals, value = setting.partition("=")
    if not equals or not key:
        raise ConfigError(f'--set takes KEY=VALUE, got "{setting}"')
    nodes = document.nodes
    node, dot, rest = key.partition(".")
    if node in RESERVED:
        hint = f"--set {rest}={value} sets it for all nodes" if node == "global" and dot else "write it into a file"
        raise ConfigError(f'--set takes keys of nodes, got "{key}"; {hint}')
    if dot and node in nodes:
        section, key = nodes[node], rest
    elif len(nodes) == 1:
        section = next(iter(nodes.values()))
    else:
        section = document.sections.setdefault("global", Section())
    section.entries["node_entrypoint" if key == "init" else key] = Entry(value, "--set")


def _import(name: str) -> None:
    if not name.endswith(".py"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name or not Path(f"{name}.py").is_file():
                raise
            raise ConfigError(f'no module named "{name}"; did you mean the file, --import {name}.py?') from None
        return
    path = Path(name)
    if not path.is_file():
        raise ConfigError(f'cannot import "{printable(name)}": no such file')
    sys.path.insert(0, str(path.resolve().parent))  # the file may import modules of its folder
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f'cannot import "{printable(name)}"')
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)


def check_all(config: LoadedConfig) -> list[Exception]:
    """Return every problem that the core finds. No backend is initialised."""
    return _core.check(config) if config.nodes else []


@contextmanager
def traced(pipe: Pipe, arguments: argparse.Namespace) -> Iterator[None]:
    """Record the trace that --trace names, if it is given, and say where it is."""
    if arguments.trace is None:
        if arguments.trace_last is not None or arguments.trace_slow is not None:
            raise ConfigError("--trace-last and --trace-slow need --trace FILE")
        yield
        return
    with pipe.trace(arguments.trace, last=arguments.trace_last, slow=arguments.trace_slow) as trace:
        yield
    if trace.lost:
        print(f"trace: {trace.lost} events were lost, {trace.events} are recorded", file=sys.stderr)
    if arguments.trace_last is not None and not trace.written:
        print("trace: no request was slow, and the file is empty", file=sys.stderr)

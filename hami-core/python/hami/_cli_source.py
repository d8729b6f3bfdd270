"""Reads SOURCE, --set and --import of the command line into a configuration."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hami import _core
from hami._config import read
from hami._config_reader import LoadedConfig
from hami._errors import ConfigError


def read_source(source: str, settings: Sequence[str], imports: Sequence[str]) -> tuple[LoadedConfig, list[Exception]]:
    """Return the configuration with the settings in it, and what is wrong."""
    for name in imports:
        _import(name)
    config, problems = read(source)
    nodes = {name: dict(keys) for name, keys in config.nodes.items()}
    config = config._replace(nodes=nodes, globals=dict(config.globals), where=dict(config.where))
    for setting in settings:
        _apply(config, setting)
    return config, problems


def _apply(config: LoadedConfig, setting: str) -> None:
    key, equals, value = setting.partition("=")
    if not equals or not key:
        raise ConfigError(f'--set takes KEY=VALUE, got "{setting}"')
    node, dot, rest = key.partition(".")
    keys: dict[str, Any]
    if dot and node in config.nodes:
        section, keys, key = node, config.nodes[node], rest
    elif len(config.nodes) == 1:
        section, keys = next(iter(config.nodes.items()))
    else:
        section, keys = "global", config.globals
    key = "node_entrypoint" if key == "init" else key
    keys[key] = value
    config.where[section, key] = "--set"


def _import(name: str) -> None:
    if not name.endswith(".py"):
        importlib.import_module(name)
        return
    path = Path(name)
    if not path.is_file():
        raise ConfigError(f'cannot import "{name}": no such file')
    sys.path.insert(0, str(path.resolve().parent))  # what it imports itself lies beside it
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f'cannot import "{name}"')
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)


def core_arguments(config: LoadedConfig) -> tuple[Any, ...]:
    """Return what the core's Pipe and check take."""
    return (
        config.nodes,
        config.globals,
        config.entrypoint,
        config.dag_entrypoint,
        config.providers,
        config.where,
    )


def check_all(config: LoadedConfig) -> list[Exception]:
    """Return everything that the core finds wrong; nothing is loaded or initialised."""
    return list(_core.check(*core_arguments(config))) if config.nodes else []

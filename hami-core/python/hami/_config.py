"""Turns what hami.pipe() accepts (a file, a dict, an expression, a packaged pipeline) into nodes for the core."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from hami import _core
from hami._config_reader import LoadedConfig, read_mapping
from hami._errors import BackendNotFound, ConfigError, PluginError

_NAME = re.compile(r"\s*(?:([A-Za-z0-9][A-Za-z0-9._-]*)::)?([A-Za-z0-9_.-]+)\s*")

KnownBackend = Callable[[str], bool]


def load(source: Any, known_backend: KnownBackend | None = None) -> LoadedConfig:
    """Read a source, or raise one error that tells everything wrong with it. The source is not changed."""
    config, problems = read(source, known_backend)
    if problems:
        raise ConfigError.of(problems)
    return config


def read(source: Any, known_backend: KnownBackend | None = None) -> tuple[LoadedConfig, list[Exception]]:
    """Read a source; return what could be understood, and everything that is wrong with the rest.

    Raises where there is nothing to understand: no such file, no TOML, no such pipeline.
    """
    if isinstance(source, LoadedConfig):
        return source, []
    if isinstance(source, Mapping):
        return read_mapping(source)
    if isinstance(source, os.PathLike) or (isinstance(source, str) and source.endswith(".toml")):
        from hami._config_files import read_file

        path = os.fspath(source)
        return read_mapping(*read_file(os.fsdecode(path)))
    if isinstance(source, str):
        return _read_text(source, known_backend or _known_backend)
    raise ConfigError(
        f"hami.pipe takes a path, a dict, an expression or the name of a packaged pipeline, got {type(source).__name__}"
    )


def _read_text(text: str, known_backend: KnownBackend) -> tuple[LoadedConfig, list[Exception]]:
    """An expression if its head is a known backend, else the name of a packaged pipeline."""
    name = _NAME.fullmatch(text)
    if name is None:
        if os.path.exists(text):
            raise ConfigError(f'"{text}" is no expression; a configuration file ends in .toml')
        return _expression(text)
    distribution, bare = name.groups()
    if known_backend(bare) and not distribution:
        return _expression(text)
    pipeline = _packaged_pipeline(bare, distribution or "")
    return _expression(text) if pipeline is None else pipeline


def _expression(text: str) -> tuple[LoadedConfig, list[Exception]]:
    return read_mapping({"backend": text})


def _known_backend(name: str) -> bool:
    if _core.is_defined(name):
        return True
    from hami._plugins import installed

    return installed.knows(name)


def _packaged_pipeline(name: str, distribution: str) -> tuple[LoadedConfig, list[Exception]] | None:
    """Return the packaged pipeline, or None if the name is a backend's after all; raise if it is neither."""
    from hami import _first_party
    from hami import _plugin_messages as messages
    from hami._config_files import read_packaged
    from hami._plugin_index import normalised
    from hami._plugins import installed

    pipelines = installed.pipelines()
    found = pipelines.get(name, [])
    if distribution:
        found = [one for one in found if normalised(one.distribution) == normalised(distribution)]
    if len(found) > 1:
        raise messages.pipeline_conflict(name, [one.distribution for one in found])
    if found:
        return read_mapping(*read_packaged(found[0]))
    if distribution:
        return None  # the core says what the distribution has
    if name in _first_party.PIPELINES:
        raise messages.pipeline_not_installed(name, _first_party.PIPELINES[name])
    try:
        installed.find(name)  # a plugin may have it without saying so in its metadata
    except PluginError:
        return None  # the core shows it with the expression
    except BackendNotFound:
        if os.path.exists(name):
            raise ConfigError(f'"{name}" is no expression; a configuration file ends in .toml') from None
        raise messages.pipeline_not_found(name, sorted(pipelines), list(installed.names())) from None
    return None

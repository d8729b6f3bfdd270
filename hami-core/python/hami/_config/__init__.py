"""Turns what hami.pipe() accepts (a file, a dict, an expression, a packaged pipeline) into nodes for the core."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hami import _core
from hami._config.document import Document, document_of
from hami._config.problems import Problems
from hami._config.reader import LoadedConfig, read_document
from hami._errors import ConfigError
from hami._runtime.backend import Backend

if TYPE_CHECKING:
    from hami._config.files import File, Location
    from hami._plugins.index import Pipeline

_NAME = re.compile(r"\s*(?:([A-Za-z0-9][A-Za-z0-9._-]*)::)?([A-Za-z0-9_.-]+)\s*")

KnownBackend = Callable[[str], bool]


def load(source: Any, known_backend: KnownBackend | None = None) -> LoadedConfig:
    """Read a source, or raise one error that tells everything wrong with it. The source is not changed."""
    config, problems = read(source, known_backend)
    if problems:
        raise ConfigError.of(problems)
    return config


def read(
    source: Any, known_backend: KnownBackend | None = None, change: Callable[[Document], None] | None = None
) -> tuple[LoadedConfig, list[Exception]]:
    """Read a source; return what could be understood, and everything that is wrong with the rest.

    Raises where there is nothing to understand: no such file, no TOML, no such pipeline. `change` may set keys before
    references to them are replaced.
    """
    if isinstance(source, LoadedConfig):
        return source, []
    problems = Problems()
    document = _document(source, known_backend or _known_backend, problems)
    if change:
        change(document)
    return read_document(document, problems), problems


def _document(source: Any, known_backend: KnownBackend, problems: Problems) -> Document:
    if isinstance(source, Mapping):
        return _together(source, None, problems)
    if isinstance(source, os.PathLike) or (isinstance(source, str) and source.endswith(".toml")):
        from hami._config.files import on_disk

        path = os.fspath(source)
        return _from_file(on_disk(os.fsdecode(path)), None, problems)
    if isinstance(source, str):
        if source.rstrip().endswith(".toml"):
            raise ConfigError(f'"{source}" ends in white space; did you mean "{source.rstrip()}"?')
        pipeline = _pipeline_named(source, known_backend)
        if pipeline is None:
            return document_of({"backend": source}, problems)
        from hami._config.files import packaged

        return _from_file(packaged(pipeline), pipeline, problems)
    instead = f'; use the name of the backend in an expression: "{name}"' if (name := _name_of_backend(source)) else ""
    raise ConfigError(
        "hami.pipe takes a path, a dict, an expression or the name of a packaged pipeline, "
        f"got {type(source).__name__}{instead}"
    )


def _name_of_backend(source: Any) -> str:
    cls = source if isinstance(source, type) else type(source)
    return cls.__name__ if issubclass(cls, Backend) else ""


def _from_file(location: Location, pipeline: Pipeline | None, problems: Problems) -> Document:
    from hami._config.files import content_of, parse

    file = parse(content_of(location, pipeline), location)
    return _together(file.data, file, problems)


def _together(data: Mapping[Any, Any], file: File | None, problems: Problems) -> Document:
    if "extends" not in data:
        label, lines = (file.location.label, file.lines) if file else ("", None)
        return document_of(data, problems, label, lines)
    from hami._config.extends import document_with_bases

    return document_with_bases(data, file, problems)


def _pipeline_named(text: str, known_backend: KnownBackend) -> Pipeline | None:
    """Return the packaged pipeline of that name; None: the text is an expression, for its head is a known backend."""
    name = _NAME.fullmatch(text)
    if name is None:
        if os.path.exists(text):
            raise ConfigError(f'"{text}" is not an expression; a configuration file ends in .toml')
        return None
    distribution, bare = name.groups()
    if known_backend(bare) and not distribution:
        return None
    from hami._config.pipelines import find_pipeline

    return find_pipeline(bare, distribution or "")


def _known_backend(name: str) -> bool:
    if _core.is_defined(name):
        return True
    from hami._plugins.manager import installed

    return installed.knows(name)

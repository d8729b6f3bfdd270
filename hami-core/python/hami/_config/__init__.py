"""Loads the source of a pipe (a file, a dict, an expression, a packaged pipeline) into nodes for the core."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hami import _core
from hami._backends.base import Backend
from hami._config import qualified_name
from hami._config.document import MAX_KEYS, Document, document_of
from hami._config.model_files import model_file, not_an_expression, open_model
from hami._config.problems import Problems
from hami._config.reader import LoadedConfig, read_document
from hami._errors import ConfigError

if TYPE_CHECKING:
    from hami._config.files import File, Location
    from hami._plugins.plugin import Pipeline

KnownBackend = Callable[[str], bool]


def load(source: Any, known_backend: KnownBackend | None = None) -> LoadedConfig:
    """Return the configuration of a source, or raise one error that contains every problem."""
    config, problems = read(source, known_backend)
    if problems:
        raise ConfigError.of(problems)
    return config


def read(
    source: Any, known_backend: KnownBackend | None = None, change: Callable[[Document], None] | None = None
) -> tuple[LoadedConfig, list[Exception]]:
    """Return the valid part of a configuration, and the problems with the rest. The source is not modified.

    Raises an error if there is nothing to read: the file or the pipeline does not exist, or the file is not TOML.
    `change` may modify the document before references are resolved.
    """
    if isinstance(source, LoadedConfig):
        return source, []
    problems = Problems()
    model = model_file(source)
    document = (
        document_of({"model": model}, problems)
        if model
        else _document(source, known_backend or _known_backend, problems)
    )
    if document.size > MAX_KEYS:
        raise ConfigError(f"a configuration has at most {MAX_KEYS} keys and tables, got {document.size}")
    if change:
        change(document)
    inside = open_model(document, model) if model else {}
    if inside:  # the configuration in a bundle
        document = _document(inside["source"], known_backend or _known_backend, problems)
        if change:
            change(document)
    return read_document(document, problems)._replace(accept=inside.get("accept")), problems


def _document(source: Any, known_backend: KnownBackend, problems: Problems) -> Document:
    if isinstance(source, Mapping):
        return _extended(source, None, problems)
    if isinstance(source, os.PathLike) or (isinstance(source, str) and source.endswith(".toml")):
        from hami._config.files import on_disk

        path = os.fspath(source)
        return _from_file(on_disk(os.fsdecode(path)), None, problems)
    if isinstance(source, str):
        if source.rstrip().endswith(".toml"):
            raise ConfigError(f'"{source}" ends with white space; did you mean "{source.rstrip()}"?')
        pipeline = _pipeline_named(source, known_backend)
        if pipeline is None:
            return document_of({"backend": source}, problems)
        from hami._config.files import packaged

        return _from_file(packaged(pipeline), pipeline, problems)
    cls = source if isinstance(source, type) else type(source)
    hint = f'; register the class and pass its name: "{cls.__name__}"' if issubclass(cls, Backend) else ""
    raise ConfigError(
        "hami.pipe takes a path, a dict, an expression or the name of a packaged pipeline, "
        f"got {type(source).__name__}{hint}"
    )


def _from_file(location: Location, pipeline: Pipeline | None, problems: Problems) -> Document:
    from hami._config.files import content_of, parse

    file = parse(content_of(location, pipeline), location)
    return _extended(file.data, file, problems)


def _extended(data: Mapping[Any, Any], file: File | None, problems: Problems) -> Document:
    """Return the document of `data`, with the documents that it extends."""
    if "extends" not in data:
        return document_of(data, problems, *file.origin) if file else document_of(data, problems)
    from hami._config.extends import document_with_bases

    return document_with_bases(data, file, problems)


def _pipeline_named(text: str, known_backend: KnownBackend) -> Pipeline | None:
    """Return the packaged pipeline that a text names; None if the text is an expression."""
    parts = qualified_name.split(text.strip())
    if parts is None:
        if os.path.exists(text):
            raise not_an_expression(text)
        return None
    distribution, name = parts
    if known_backend(name) and not distribution:
        return None
    from hami._config.pipelines import find_pipeline

    return find_pipeline(name, distribution)


def _known_backend(name: str) -> bool:
    if _core.is_defined(name):
        return True
    from hami._plugins.manager import installed

    return installed.knows(name)

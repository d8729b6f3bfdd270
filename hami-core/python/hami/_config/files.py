"""Reads configuration files and packaged pipelines, with the line of every key."""

from __future__ import annotations

import codecs
import importlib.util
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hami._config.toml_lines import key_lines, tomllib
from hami._errors import ConfigError, PluginError
from hami._plugins import messages
from hami._plugins.index import Pipeline

_AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")

MAX_PARTS = 100  # of a dotted key; tomllib takes forever for very many
_PART = r"(?:[A-Za-z0-9_-]+|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*')"
_TOO_MANY_PARTS = re.compile(rf"(?:^|[\[{{,])[ \t]*(?:{_PART}[ \t]*\.[ \t]*){{{MAX_PARTS}}}", re.M)


class Location(NamedTuple):
    """Where a file is, what messages call it, and how it is read: from the disk, or out of a package in an archive."""

    path: str
    label: str
    get: Callable[[str], bytes]

    @property
    def identity(self) -> str:
        try:
            return os.path.realpath(self.path)
        except ValueError:  # a NUL in it; reading says so
            return self.path

    def beside(self, name: str) -> Location:
        """Return where `name` is as this file would say it."""
        folder, label = os.path.dirname(self.path), os.path.dirname(self.label)
        return Location(os.path.join(folder, name), os.path.join(label, name), self.get)


class File(NamedTuple):
    """What a file says: its keys, and the line of each."""

    location: Location
    data: dict[str, Any]
    lines: Mapping[tuple[str, ...], int]


def on_disk(path: str) -> Location:
    """Return the location of a file of the user's."""
    return Location(path, path, _from_disk)


def packaged(pipeline: Pipeline) -> Location:
    """Return the location of what an entry point "package:file.toml" names, without importing the package."""
    package, _, name = pipeline.value.partition(":")
    try:
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError(f"No package named {package!r}")
    except Exception as error:
        raise _pipeline_failed(pipeline, messages.describe_exception(error)) from error
    path = os.path.join(next(iter(spec.submodule_search_locations)), *name.split("/"))
    get = getattr(spec.loader, "get_data", None)  # files and zip archives alike; none without __init__.py
    return Location(path, f"{package.replace('.', '/')}/{name}", get or _from_disk)


def content_of(location: Location, pipeline: Pipeline | None) -> bytes:
    """Return the bytes of a file, of a pipeline that a plugin packages if one is given."""
    try:
        return location.get(location.path)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        if pipeline:
            raise _pipeline_failed(pipeline, f"{reason}: {location.path}") from error
        instead = _instead(location) if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(f'cannot read "{location.label}": {reason}{instead}') from error


def parse(content: bytes, location: Location) -> File:
    """Parse TOML, and find the line of each key."""
    label = location.label
    try:
        text = content.removeprefix(codecs.BOM_UTF8).decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{label}:{line}: not UTF-8 text, which TOML files are (byte {error.start})") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise ConfigError(f"{label}:{line}: a NUL character, which TOML files never have")
    long_key = _TOO_MANY_PARTS.search(text)
    if long_key:
        line = text.count("\n", 0, long_key.end()) + 1
        raise ConfigError(f"{label}:{line}: a key has {MAX_PARTS} dots or more")
    try:
        return File(location, tomllib.loads(text), key_lines(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_syntax_error(text, label, str(error))) from None
    except RecursionError:
        raise ConfigError(f"{label}: nested too deeply") from None
    except ValueError as error:  # a number with more digits than Python reads
        raise ConfigError(f"{label}: {error}") from None


def _from_disk(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _pipeline_failed(pipeline: Pipeline, text: str) -> PluginError:
    return messages.pipeline_failed(pipeline.name, pipeline.distribution, pipeline.version, text)


def _syntax_error(text: str, label: str, message: str) -> str:
    found = _AT.search(message)
    reason = message[: found.start()] if found else message
    if not found or not found.group(1):
        line, column = text.count("\n") + (not text.endswith("\n")), 0
    else:
        line, column = int(found.group(1)), int(found.group(2))
    other = "" if label.endswith(".toml") else "; a configuration file is TOML"
    headline = f"{label}:{max(line, 1)}: {reason}{other}"
    shown = text.split("\n")[line - 1] if column else ""
    if not shown or len(shown) > 160 or not shown.isprintable():
        return headline
    return f"{headline}\n  {shown}\n  {' ' * (column - 1)}^"


def _instead(location: Location) -> str:
    """Suggest a file of the same folder with nearly that name, or tell which folder that is."""
    from hami import _core

    folder, name = os.path.split(location.path)
    try:
        files = [file for file in os.listdir(folder or ".") if file.endswith(".toml")]
    except OSError:
        files = []
    shown = os.path.dirname(location.label)
    near = [os.path.join(shown, file) for file in _core.near_names(name, files)]
    if near or os.path.isabs(location.path):
        return _core.did_you_mean(near, quoted=True)
    return f" (looked for {os.path.abspath(location.path)})"

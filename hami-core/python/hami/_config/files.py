"""Reads configuration files and packaged pipelines, and finds the line of every key."""

from __future__ import annotations

import codecs
import errno
import importlib.util
import os
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from hami import _core
from hami._config.document import MAX_KEYS, document_of
from hami._config.problems import Problems
from hami._config.reader import read_document
from hami._config.toml_lines import count_keys, key_lines, tomllib
from hami._errors import ConfigError, PluginError
from hami._plugins import messages
from hami._plugins.files import open_file
from hami._plugins.plugin import Pipeline
from hami._text import did_you_mean, printable

_POSITION = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")

MAX_BYTES = 16 << 20  # of a file; the largest configurations have some hundred KiB
MAX_PARTS = 100  # of a dotted key; tomllib takes very long for thousands
MAX_BITS = 4096  # of a number
TOO_DEEP = "tables or arrays are nested too deeply"
LONG_KEY = f"a key must have fewer than {MAX_PARTS} dots"
_LONG_NUMBER = re.compile(r"0[xob][0-9a-fA-F_]{1000}")
_PART = r"(?:[A-Za-z0-9_-]+|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*')"
_TOO_MANY_PARTS = re.compile(rf"(?:^|[\[{{,])[ \t]*(?:{_PART}[ \t]*\.[ \t]*){{{MAX_PARTS}}}", re.M)


MAX_CHECKED = 1000  # keys; a mistake of a program repeats, so that the first keys show it
_PAIR = re.compile(r"^[ \t]*[A-Za-z0-9_.-]+[ \t]*=", re.M)


class Location(NamedTuple):
    """The path of a file, its name in messages, and the function that reads it: from the disk, or from an archive."""

    path: str
    label: str
    get: Callable[[str], bytes]

    @property
    def identity(self) -> str:
        """The same text for every path of the same file."""
        try:
            return os.path.realpath(self.path)
        except ValueError:  # the path contains NUL; reading it raises an error
            return self.path

    @property
    def folder(self) -> str:
        """The absolute path of the folder of the file, without symbolic links."""
        return os.path.realpath(os.path.dirname(self.path))

    def sibling(self, name: str) -> Location:
        """Return the location of `name`, relative to the folder of this file."""
        folder, label = os.path.dirname(self.path), os.path.dirname(self.label)
        return Location(os.path.join(folder, name), os.path.join(label, printable(name)), self.get)


class File(NamedTuple):
    """A parsed file: its keys, and the line of each key."""

    location: Location
    data: dict[str, Any]
    lines: Mapping[tuple[str, ...], int]

    @property
    def origin(self) -> tuple[str, Mapping[tuple[str, ...], int], str]:
        """Its name in messages, the line of each key, and its folder."""
        return self.location.label, self.lines, self.location.folder


def on_disk(path: str) -> Location:
    """Return the location of a file on the disk."""
    return Location(path, printable(path), _from_disk)


def packaged(pipeline: Pipeline) -> Location:
    """Return the location of the file that an entry point "package:file.toml" names. The package is not imported."""
    package, _, name = pipeline.value.partition(":")
    try:
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError(f"No package named {package!r}")
    except Exception as error:
        raise _pipeline_failed(pipeline, messages.describe_exception(error)) from error
    folder = next(iter(spec.submodule_search_locations))
    get = None if os.path.isdir(folder) else getattr(spec.loader, "get_data", None)  # reads a zip archive
    return Location(os.path.join(folder, *name.split("/")), f"{package.replace('.', '/')}/{name}", get or _from_disk)


def content_of(location: Location, pipeline: Pipeline | None) -> bytes:
    """Return the bytes of a file. `pipeline` is the packaged pipeline that it belongs to."""
    try:
        content = location.get(location.path)
        if len(content) > MAX_BYTES:
            raise OSError(errno.EFBIG, f"a configuration file has at most {MAX_BYTES >> 20} MiB")
        return content
    except (OSError, ValueError) as error:
        nul = "a path has no NUL character"  # the words of ValueError differ between versions of Python
        reason = nul if isinstance(error, ValueError) else error.strerror or str(error)
        if pipeline:
            raise _pipeline_failed(pipeline, f"{reason}: {printable(location.path)}") from error
        hint = _suggestion(location) if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(f'cannot read "{location.label}": {reason}{hint}') from error


def parse(content: bytes, location: Location) -> File:
    """Return the keys of a TOML file, and the line of each key."""
    label = location.label
    try:
        text = content.removeprefix(codecs.BOM_UTF8).decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{label}:{line}: TOML must be UTF-8 text, got an invalid byte at offset {error.start}"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise ConfigError(f"{label}:{line}: TOML must not contain NUL characters")
    keys = count_keys(text, MAX_KEYS)
    if keys > MAX_KEYS:
        headline = f"{label}: a configuration has at most {MAX_KEYS} keys and tables, got {keys}"
        raise ConfigError.of([ConfigError(headline), *_unused_keys(text, label)])
    if line := _line_of_long_key(text):
        raise ConfigError(f"{label}:{line}: {LONG_KEY}")
    try:
        return File(location, _tables_of(text), key_lines(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_syntax_error(text, label, str(error))) from None
    except RecursionError:  # looking for lines recurses deeper than tomllib
        raise ConfigError(f"{label}: {TOO_DEEP}") from None
    except ValueError as error:
        raise ConfigError(f"{label}: {error}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Return the keys of TOML text, which may come from a stranger: tomllib needs hours for some texts.

    Raises:
        ValueError: The text is not TOML, is nested too deeply, or has a key or a number that is too long.
    """
    if line := _line_of_long_key(text):
        raise ValueError(f"{LONG_KEY} (at line {line})")
    return _tables_of(text)


def _line_of_long_key(text: str) -> int:
    """Return the line of the first key with too many parts; 0 if the text has none."""
    found = _TOO_MANY_PARTS.search(text)
    return text.count("\n", 0, found.end()) + 1 if found else 0


def _tables_of(text: str) -> dict[str, Any]:
    try:
        tables: dict[str, Any] = tomllib.loads(text)
        _require_short_numbers(text, tables)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    return tables


def _require_short_numbers(text: str, tables: dict[str, Any]) -> None:
    """Raise ValueError for a number that Python can read, as it is not decimal, and cannot write."""
    if not _LONG_NUMBER.search(text):
        return
    left: list[Any] = [tables]
    while left:
        value = left.pop()
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise ValueError(f"a number must have at most {MAX_BITS} bits, got {value.bit_length()}")
        if isinstance(value, (dict, list)):
            left += value.values() if isinstance(value, dict) else value


def _from_disk(path: str) -> bytes:
    """Return the content of a regular file, and not much more than may be read of it."""
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    with open_file(Path(path)) as file:
        return file.read(MAX_BYTES + 1)


def _pipeline_failed(pipeline: Pipeline, text: str) -> PluginError:
    return messages.pipeline_failed(pipeline.name, pipeline.distribution, pipeline.version, text)


def _syntax_error(text: str, label: str, message: str) -> str:
    found = _POSITION.search(message)
    reason = message[: found.start()] if found else message
    if not found or not found.group(1):
        line, column = text.count("\n") + (not text.endswith("\n")), 0
    else:
        line, column = int(found.group(1)), int(found.group(2))
    hint = "" if label.endswith(".toml") else "; a configuration file must be TOML"
    headline = f"{label}:{max(line, 1)}: {reason}{hint}"
    shown = text.split("\n")[line - 1] if column else ""
    if not shown or len(shown) > 160 or not shown.isprintable():
        return headline
    return f"{headline}\n  {shown}\n  {' ' * (column - 1)}^"


def _suggestion(location: Location) -> str:
    """Suggest files of the same folder with a similar name; without one, return the absolute path."""
    folder, name = os.path.split(location.path)
    try:
        files = [file for file in os.listdir(folder or ".") if file.endswith(".toml")]
    except OSError:
        files = []
    near = did_you_mean(name, files, quoted=True, folder=os.path.dirname(location.label))
    return near or (
        "" if os.path.isabs(location.path) else f" (looked for {printable(os.path.abspath(location.path))})"
    )


def _unused_keys(text: str, label: str) -> Iterator[Exception]:
    """Return what the core says of unused keys among the first ones. Other errors may be due to the missing rest."""
    after = next(islice(_PAIR.finditer(text), MAX_CHECKED, None), None)
    beginning = text[: after.start() if after else 0]
    try:
        document = document_of(tomllib.loads(beginning), Problems(), label, key_lines(beginning))
    except ValueError:  # the text is not TOML, or it was cut inside a value of several lines
        return
    if document.size <= MAX_KEYS:  # a line may have many keys
        for problem in _core.check(read_document(document, Problems())):
            unused = re.match(r'nothing uses the key "(.*)"', str(problem))
            if unused and f"${{{unused[1]}}}" not in text:
                yield problem

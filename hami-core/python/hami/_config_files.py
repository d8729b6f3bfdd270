"""Reads configuration files and packaged pipelines, with the line of every key."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from typing import Any

from hami import _plugin_messages as messages
from hami._errors import ConfigError
from hami._plugin_index import Pipeline
from hami._toml_lines import key_lines, tomllib

_AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")

Read = tuple[dict[str, Any], str, Mapping[tuple[str, ...], int]]  # the data, the file's name, the line of each key


def read_file(path: str) -> Read:
    """Read a TOML file of the user's."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f'cannot read "{path}": {reason}{_instead(path)}') from error
    return parse(content, path)


def read_packaged(pipeline: Pipeline) -> Read:
    """Read the TOML file that an entry point "package:file.toml" names, without importing the package."""
    package, _, name = pipeline.value.partition(":")
    try:
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError(f"No package named {package!r}")
        path = os.path.join(next(iter(spec.submodule_search_locations)), *name.split("/"))
        get_data = getattr(spec.loader, "get_data", None)
        if get_data:  # files and zip archives alike
            content = get_data(path)
        else:  # a package without __init__.py
            with open(path, "rb") as file:
                content = file.read()
    except Exception as error:
        text = f"{error.strerror}: {path}" if isinstance(error, OSError) else messages.describe_exception(error)
        raise messages.pipeline_failed(pipeline.name, pipeline.distribution, pipeline.version, text) from error
    return parse(content, f"{package.replace('.', '/')}/{name}")


def parse(content: bytes, label: str) -> Read:
    """Parse TOML; `label` is what messages call the file."""
    try:
        text = content.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{label}:{line}: not UTF-8 text, which TOML files are (byte {error.start})") from None
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_syntax_error(text, label, str(error))) from None
    except RecursionError:
        raise ConfigError(f"{label}: nested too deeply") from None
    except ValueError as error:  # a number with more digits than Python reads
        raise ConfigError(f"{label}: {error}") from None
    return data, label, key_lines(text)


def _syntax_error(text: str, label: str, message: str) -> str:
    found = _AT.search(message)
    reason = message[: found.start()] if found else message
    if not found or not found.group(1):
        line, column = text.count("\n") + (not text.endswith("\n")), 0
    else:
        line, column = int(found.group(1)), int(found.group(2))
    headline = f"{label}:{max(line, 1)}: {reason}"
    shown = text.split("\n")[line - 1] if column else ""
    if not shown or len(shown) > 160 or not shown.isprintable():
        return headline
    return f"{headline}\n  {shown}\n  {' ' * (column - 1)}^"


def _instead(path: str) -> str:
    """Suggest a file of the same folder with nearly that name."""
    from hami import _core

    folder, name = os.path.split(path)
    try:
        files = [file for file in os.listdir(folder or ".") if file.endswith(".toml")]
    except (OSError, ValueError):
        return ""
    near = [os.path.join(folder, file) for file in _core.near_names(name, files)] if name not in files else []
    return _core.did_you_mean(near, quoted=True)

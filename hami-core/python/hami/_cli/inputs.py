"""Reads the inputs of commands that run a pipeline: files, folders, standard input, text and JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hami._errors import ConfigError, RequestError
from hami._text import printable


class Input:
    """An input: its name in messages, and its data or the file with its data."""

    node: str | None = None  # where the request starts

    def __init__(self, label: str, data: Any = None, path: Path | None = None) -> None:
        self.label = label
        self._data = data
        self._path = path

    def request(self) -> dict[str, Any]:
        """Read the file, if any, and return the request."""
        start = {"node_name": self.node} if self.node else {}
        return {"data": self._data if self._path is None else self._content(self._path), **start}

    @staticmethod
    def _content(path: Path) -> Any:
        if path.suffix in (".npy", ".npz"):
            return _arrays_of(path)
        try:
            return path.read_bytes()
        except OSError as error:
            raise RequestError(f"cannot be read: {error.strerror}") from error


def _arrays_of(path: Path) -> Any:
    """Return the array of an .npy file, or a dict of the arrays of an .npz file. Python objects are not unpickled."""
    try:
        import numpy
    except ModuleNotFoundError:
        raise RequestError(f"reading a {path.suffix} file needs NumPy: pip install numpy") from None
    try:
        found = numpy.load(path, allow_pickle=False)
        if isinstance(found, numpy.ndarray):
            return found
        with found:
            return dict(found)
    except OSError as error:
        raise RequestError(f"cannot be read: {error.strerror or error}") from error
    except Exception as error:  # damaged files raise errors of several modules
        raise RequestError(f"is not a {path.suffix} file with arrays of numbers or text: {error}") from error


def _number(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text} is outside of the range of float64")
    return value


def inputs_of(arguments: argparse.Namespace) -> Iterator[Input]:
    """Yield the inputs that the arguments name; files are not read yet."""
    for each in _named(arguments):
        each.node = arguments.node
        yield each


def _named(arguments: argparse.Namespace) -> Iterator[Input]:
    for text in arguments.text:
        yield Input("--text", text)
    for data in arguments.data:
        try:
            yield Input("--data", json.loads(data, parse_float=_number))
        except (ValueError, RecursionError) as error:
            raise ConfigError(
                f"--data takes a JSON value: {error}; for plain text use --text, and give a file without --data"
            ) from None
    for name in arguments.inputs:
        path = Path(name)
        if name == "-":
            if sys.stdin is None:
                raise ConfigError("cannot read the input - : standard input is closed")
            yield Input("standard input", sys.stdin.buffer.read())
        elif path.is_dir():
            files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
            if not files:
                raise ConfigError(f'the folder "{printable(name)}" has no files')
            yield from (Input(printable(file), path=file) for file in files)
        else:
            yield Input(printable(name), path=path)
    if not (arguments.text or arguments.data or arguments.inputs):
        raise ConfigError("there is no input; give a file, a folder, - for standard input, --text or --data")

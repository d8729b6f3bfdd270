"""Loads the library of a native plugin."""

from __future__ import annotations

import os
from typing import NamedTuple

from hami import _core
from hami._errors import PluginError


class Refused(PluginError):
    """This hami-core does not serve the plugin; its text follows "…, which" in messages."""


class Library(NamedTuple):
    """What a library says of itself, and the core's handles of its classes."""

    name: str
    version: str
    abi: str  # that it was built with
    classes: list[_core.BackendClass]


def shown(path: os.PathLike[str] | str) -> str:
    """Return a path as printable text: a byte that is not UTF-8 becomes \\xff, as in the core."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def load(path: os.PathLike[str] | str, owner: str) -> Library:
    """Load a plugin's library for good. Raises Refused if this core does not serve its ABI, else PluginError."""
    try:
        name = os.fsencode(os.path.abspath(path))
    except UnicodeEncodeError as error:
        given = repr(os.fspath(path))
        raise PluginError(f"a library's path is text that names a file, got {given}: {error.reason}") from None
    try:
        return Library(*_core.load_library(name, owner))
    except _core.AbiMismatch as error:
        raise Refused(str(error)) from None

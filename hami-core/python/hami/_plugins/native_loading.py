"""Loads the shared library of a native plugin."""

from __future__ import annotations

import os
from typing import NamedTuple

from hami import _core
from hami._errors import PluginError


class Incompatible(PluginError):
    """This hami-core does not serve the ABI version that a plugin needs; messages show the text after "…, which"."""


class Library(NamedTuple):
    """A loaded library: its own description, and the core's handles of its classes."""

    name: str
    version: str
    abi: str  # the ABI version that it was built with
    since: str  # the first release of hami-core that it runs with
    classes: list[_core.BackendClass]


def load(path: os.PathLike[str] | str, owner: str) -> Library:
    """Load a plugin's library, which stays loaded. Raises Incompatible or another PluginError."""
    try:
        name = os.fsencode(os.path.abspath(path))
    except UnicodeEncodeError as error:
        raise PluginError(
            f"the path of a library must be text that can name a file, got {os.fspath(path)!r}: {error.reason}"
        ) from None
    try:
        return Library(*_core.load_library(name, owner))
    except _core.AbiMismatch as error:
        raise Incompatible(str(error)) from None

"""Loads the library of a native plugin."""

from __future__ import annotations

import os
from typing import NamedTuple

from hami import _core
from hami._errors import PluginError


class Refused(PluginError):
    """This hami-core does not serve such plugins; its text stands after "…, which"."""


class Library(NamedTuple):
    """What a library says of itself, and the core's handles of its classes."""

    name: str
    version: str
    abi: str  # that it was built with
    classes: list[_core.BackendClass]


def load(path: os.PathLike[str] | str, owner: str) -> Library:
    """Load a plugin's library for good. Raises Refused if this core does not serve its ABI, else PluginError."""
    try:
        return Library(*_core.load_library(os.path.abspath(path), owner))
    except _core.AbiRefused as error:
        raise Refused(str(error)) from None

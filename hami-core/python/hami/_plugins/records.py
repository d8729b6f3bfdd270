"""The records that `hami.plugins()` and `hami.backends()` return."""

from __future__ import annotations

from typing import Any, NamedTuple

from hami import _core


class PluginRecord(NamedTuple):
    """The record of one plugin."""

    plugin: str
    """The name of the plugin."""
    distribution: str
    """The distribution that provides it."""
    version: str
    """The version of the distribution."""
    abi: str | None
    """The plugin ABI that a native plugin was built with; None for other plugins, and until it is loaded."""
    state: str
    """One of "ok", "not loaded", "disabled", "failed" and "incompatible"."""
    error: str | None
    """Why the plugin cannot be used, in one line; None if it can."""
    seconds: float | None
    """The time that loading took; None if it is not loaded."""
    backends: tuple[str, ...]
    """The names of its backends."""
    pipelines: tuple[str, ...]
    """The names of the pipelines that its distribution packages."""
    remarks: tuple[str, ...]
    """Warnings about a plugin that works, such as a name that another plugin provides too."""
    since: str | None
    """The first release of hami-core that a native plugin runs with; None for other plugins, and until it is loaded."""


class BackendInfo(NamedTuple):
    """The description of one name that an expression can use.

    The fields after `owner` are None until the plugin is loaded: only the class knows them.
    """

    name: str
    """The name."""
    owner: str
    """The distribution that provides it; empty if this process registered it."""
    doc: str | None = None
    """The documentation of the class."""
    params: list[dict[str, Any]] | None = None
    """The declared parameters."""
    brackets: str | None = None
    """The bracket items that the class takes, as text; empty if it takes none."""
    thread: str | None = None
    """The trait `thread`."""
    non_blocking: bool | None = None
    """The trait `non_blocking`."""
    lightweight: bool | None = None
    """The trait `lightweight`."""
    range: str | None = None
    """The batch sizes that the class declares, as text; empty if it declares none."""
    aliases: list[str] | None = None
    """Other names of the class."""


def info_of(handle: _core.BackendClass) -> BackendInfo:
    """Return the description of a loaded class."""
    return BackendInfo(**{field: getattr(handle, field) for field in BackendInfo._fields})

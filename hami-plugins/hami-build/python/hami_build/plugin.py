"""The entry module of the plugin: `hami build`. It registers no backends."""

from __future__ import annotations

from typing import Any

import pluggy

hookimpl = pluggy.HookimplMarker("hami")


@hookimpl
def hami_register(registry: Any) -> None:
    """Register nothing: this package builds plugins."""


@hookimpl
def hami_commands(subparsers: Any) -> None:
    from hami_build.commands import add_commands

    text = "build, check and publish plugins"
    add_commands(subparsers.add_parser("build", help=text, description=f"{text.capitalize()}.", allow_abbrev=False))

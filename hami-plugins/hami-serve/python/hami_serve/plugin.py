"""The entry module of the plugin. It registers no backends."""

from __future__ import annotations

from typing import Any

import pluggy

hookimpl = pluggy.HookimplMarker("hami")


@hookimpl
def hami_register(registry: Any) -> None:
    """Register nothing: this package runs pipes, and its backends come from other plugins."""


@hookimpl
def hami_commands(subparsers: Any) -> None:
    from hami_serve.commands import add_serve, add_serve_check

    add_serve(subparsers)
    add_serve_check(subparsers)

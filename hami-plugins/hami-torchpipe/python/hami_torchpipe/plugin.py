"""The entry module of the plugin: hints for names and keys of torchpipe. It registers no backends."""

from __future__ import annotations

from typing import Any

import pluggy

from hami_torchpipe import replacements

hookimpl = pluggy.HookimplMarker("hami")


@hookimpl
def hami_register(registry: Any) -> None:
    """Register nothing: the backends of torchpipe are those of the core and of other plugins."""


@hookimpl
def hami_missing_backend(name: str) -> str | None:
    return replacements.hint(replacements.BACKENDS.get(name))


@hookimpl
def hami_unknown_key(key: str) -> str | None:
    return replacements.hint(replacements.KEYS.get(key))

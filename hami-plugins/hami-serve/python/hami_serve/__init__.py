"""Many models in one process: added, replaced and removed while they run, and served to other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hami_serve.component import Component
    from hami_serve.errors import ModelUnavailable, RemoteFailed, RemoteUnavailable
    from hami_serve.http_app import app
    from hami_serve.model import Handle, ModelInfo, State
    from hami_serve.rounder import AllRounder

__all__ = [
    "AllRounder",
    "Component",
    "Handle",
    "ModelInfo",
    "ModelUnavailable",
    "RemoteFailed",
    "RemoteUnavailable",
    "State",
    "app",
]

_MODULES = {
    "AllRounder": "rounder",
    "Component": "component",
    "Handle": "model",
    "ModelInfo": "model",
    "ModelUnavailable": "errors",
    "RemoteFailed": "errors",
    "RemoteUnavailable": "errors",
    "State": "model",
    "app": "http_app",
}


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:

    def __getattr__(name):
        """Import a module when one of its names is used: plugins are found without numpy, and quickly."""
        if name not in _MODULES:
            raise AttributeError(f"module 'hami_serve' has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f"hami_serve.{_MODULES[name]}"), name)
        globals()[name] = value
        return value

"""Many models in one process: added, replaced and removed while they run, and served to other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hami_serve.component import Component
from hami_serve.errors import ModelUnavailable
from hami_serve.model import Handle, ModelInfo, State
from hami_serve.rounder import AllRounder

if TYPE_CHECKING:
    from hami_serve.http_app import app

__all__ = ["AllRounder", "Component", "Handle", "ModelInfo", "ModelUnavailable", "State", "app"]


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:

    def __getattr__(name):
        """Import the web framework when `app` is used."""
        if name != "app":
            raise AttributeError(f"module 'hami_serve' has no attribute {name!r}")
        from hami_serve.http_app import app

        return app

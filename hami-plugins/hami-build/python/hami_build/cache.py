"""The folder for what can be made again: libraries of the compiler, build folders, logs."""

from __future__ import annotations

import os
from pathlib import Path

_chosen: Path | None = None


def folder() -> Path:
    """Return the folder: that of `use`, else HAMI_CACHE, else hami-build in the user's cache folder."""
    if _chosen is not None:
        return _chosen
    given = os.environ.get("HAMI_CACHE")
    users = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    return Path(given).resolve() if given else users / "hami-build"


def use(chosen: Path) -> None:
    """Use another folder in this process."""
    global _chosen
    _chosen = chosen

"""The folder for what can be made again: libraries of the compiler, build folders, logs."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from hami_build.errors import Failure

_chosen: Path | None = None


def folder() -> Path:
    """Return the folder: that of `use`, else HAMI_CACHE, else hami-build in the user's cache folder.

    A user without a home folder, as in many containers, has one in the folder for temporary files.
    """
    if _chosen is not None:
        return _chosen
    if given := os.environ.get("HAMI_CACHE"):
        return Path(given).resolve()
    if users := os.environ.get("XDG_CACHE_HOME"):
        return _private(Path(users) / "hami-build")
    try:
        home = Path.home()
    except RuntimeError:  # neither HOME nor an entry in the list of users
        home = None
    if home is not None and home.is_dir() and os.access(home, os.W_OK):
        return _private(home / ".cache" / "hami-build")
    return _own(Path(tempfile.gettempdir()) / f"hami-build-{os.getuid()}")


def _private(place: Path) -> Path:
    """Make a folder, and those around it, that only this user can enter. One that cannot be made fails when used.

    As `hami.packages.make_private`, which may not be built yet: this package builds it.
    """
    with contextlib.suppress(OSError):
        for folder in (*reversed(place.parents), place):
            folder.mkdir(mode=0o700, exist_ok=True)  # with parents=True, the mode is that of the last folder only
    return place


def _own(shared: Path) -> Path:
    """Make a folder in one that all users share. Raises Failure if it is that of another user."""
    shared.mkdir(mode=0o700, exist_ok=True)
    if shared.lstat().st_uid != os.getuid() or shared.is_symlink():
        raise Failure(f"{shared} belongs to another user; set HAMI_CACHE to a folder of yours")
    return shared


def use(chosen: Path) -> None:
    """Use another folder in this process."""
    global _chosen
    _chosen = chosen

"""Where packages are installed: the folder, and why an installation is refused there."""

from __future__ import annotations

import os
import shlex
import site
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import hami
from hami import PluginError

ADVICE = "create an environment of your own:"


class Environment(NamedTuple):
    """A folder for packages that this Python uses."""

    folder: str
    target: bool = False  # a folder for `--target`, which pip does not manage
    user: bool = False  # the folder of the user


def chosen(*, user: bool = False, target: str | None = None) -> Environment:
    """Return the folder that the options select; by default that of this environment."""
    if target is not None:
        return Environment(os.path.abspath(target), target=True)
    if user:
        if _is_virtual():
            raise PluginError(
                f"--user has no effect in the virtual environment {sys.prefix}; omit --user to install into it"
            )
        return Environment(site.getusersitepackages(), user=True)
    return _own_target() or Environment(sysconfig.get_path("purelib"))


def _own_target() -> Environment | None:
    """Return the folder of hami-core, if `pip install --target` wrote it."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(hami.__file__)))
    managed = [os.path.realpath(path) for path in managed_folders()]
    if os.path.realpath(folder) in managed or not list(Path(folder).glob("hami_core-*.dist-info")):
        return None
    return Environment(folder, target=True)


def managed_folders() -> list[str]:
    """Return the folders from which pip can remove packages."""
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()}
    return sorted({*paths, site.getusersitepackages()})


def require_changeable(environment: Environment, names: Sequence[str]) -> None:
    """Raise PluginError if the folder must not or cannot be changed; the message has a command that works."""
    marker = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    if not environment.target and not _is_virtual() and os.path.isfile(marker):
        raise PluginError(
            f"this Python is managed by the system, which does not allow pip to change it ({marker}); "
            f"{ADVICE} {new_environment(names)}"
        )
    writable = existing_parent(environment.folder)
    if not os.access(writable, os.W_OK | os.X_OK):
        others = "" if environment.user or environment.target or _is_virtual() else "add --user, or "
        raise PluginError(
            f"cannot write to {environment.folder}: {writable} is read-only for this user; "
            f"{others}{ADVICE} {new_environment(names)}"
        )


def new_environment(names: Sequence[str]) -> str:
    """Return the command that installs hami-core and packages into a new environment."""
    return f"python3 -m venv env && env/bin/pip install {shlex.join(['hami-core', *names])}"


def existing_parent(folder: str) -> str:
    """Return the folder, or its first parent that exists."""
    while not os.path.exists(folder):
        folder = os.path.dirname(folder) or "."
    return folder


def tool_note(names: Sequence[str]) -> str:
    """Return how plugins stay installed in an environment of pipx or `uv tool`; empty in any other environment."""
    if os.path.isfile(os.path.join(sys.prefix, "uv-receipt.toml")):
        options = shlex.join(word for name in names for word in ("--with", name))
        return (
            f"`uv tool upgrade` removes what uv tool did not install; to keep it: uv tool install hami-core {options}"
        )
    if os.path.isfile(os.path.join(sys.prefix, "pipx_metadata.json")):
        return (
            f"`pipx reinstall` removes what pipx did not install; to keep it: pipx inject hami-core {shlex.join(names)}"
        )
    return ""


def _is_virtual() -> bool:
    return sys.prefix != sys.base_prefix

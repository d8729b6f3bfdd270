"""Where packages are installed: the folder, and why an installation is refused there."""

from __future__ import annotations

import os
import shlex
import site
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import hami
from hami import PluginError
from hami.packages import CORE, GROUPS, distributions, normalised

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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
    """Return how plugins stay installed where a tool owns the environment: pipx, `uv tool`, or a project of uv."""
    receipt = Path(sys.prefix, "uv-receipt.toml")
    if receipt.is_file():
        return f"`uv tool upgrade` removes what uv tool did not install; to keep it: {_uv_tool_install(receipt, names)}"
    if os.path.isfile(os.path.join(sys.prefix, "pipx_metadata.json")):
        return (
            f"`pipx reinstall` removes what pipx did not install; to keep it: pipx inject hami-core {shlex.join(names)}"
        )
    if project := _uv_project():
        locked = {normalised(package["name"]) for package in _table(project / "uv.lock").get("package", ())}
        lost = [name for name in dict.fromkeys((*names, *installed_plugins())) if normalised(name) not in locked]
        add = shlex.join(["uv", "add", "--project", str(project), *lost])
        return f"`uv sync` and `uv run` remove what {project / 'pyproject.toml'} does not list; to keep it: {add}"
    return ""


def _uv_tool_install(receipt: Path, names: Sequence[str]) -> str:
    """Return the command that installs the tool again, with all that uv was asked for, and all plugins."""
    tool = _table(receipt).get("tool", {})
    listed = {normalised(each["name"]): each for each in tool.get("requirements", ()) if "name" in each}
    main = normalised(Path(sys.prefix).name)
    words = [*(["--python", tool["python"]] if "python" in tool else [])]
    main = main if main in listed else CORE
    words += _words_of(listed.pop(main, {"name": main}))
    for each in listed.values():
        option, word = "--with", _words_of(each)
        if each.get("editable"):
            option, word = "--with-editable", [str(each["editable"])]
        words += [option, *word]
    for name in dict.fromkeys(map(normalised, (*names, *installed_plugins()))):
        if name not in listed and name != main:
            words += ["--with", name]
    return shlex.join(["uv", "tool", "install", *words])


def _words_of(listed: Mapping[str, Any]) -> list[str]:
    """Return a requirement of a receipt as uv takes it."""
    name = str(listed["name"])
    if listed.get("extras"):
        name += f"[{','.join(listed['extras'])}]"
    if place := listed.get("directory") or listed.get("path"):
        return [str(place)]
    if address := listed.get("url") or (f"git+{listed['git']}" if "git" in listed else ""):
        return [f"{name} @ {address}"]
    return [name + str(listed.get("specifier", ""))]


def _uv_project() -> Path | None:
    """Return the folder of the project of uv whose environment this is."""
    folders = [Path(sys.prefix).parent]
    elsewhere = os.environ.get("UV_PROJECT_ENVIRONMENT")
    if elsewhere and os.path.realpath(elsewhere) == os.path.realpath(sys.prefix):
        folders += [Path.cwd(), *Path.cwd().parents]
    files = ("uv.lock", "pyproject.toml")
    return next((folder for folder in folders if all((folder / file).is_file() for file in files)), None)


def installed_plugins() -> list[str]:
    """Return the names of the installed plugins that hami-core does not require."""
    found = set()
    for each in distributions():
        try:
            if any(entry.group in GROUPS for entry in each.entry_points):
                found.add(normalised(each.metadata["Name"]))
        except Exception:  # a leftover folder
            continue
    return sorted(found)


def _table(path: Path) -> dict[str, Any]:
    """Return a TOML file of uv; empty if it cannot be read."""
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return table


def _is_virtual() -> bool:
    return sys.prefix != sys.base_prefix

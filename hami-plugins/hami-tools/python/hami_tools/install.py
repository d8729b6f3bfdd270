"""The commands `hami install`, `hami uninstall` and `hami download`: thin, over pip or uv of this environment."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata as metadata
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from hami import PluginError
from hami.cli import json_of, print_table
from hami.packages import CORE, GROUPS, Catalog, distributions, load_local, normalised

from hami_tools.packages import catalog, environment, installers, policy_rules, provenance, publishers
from hami_tools.packages.environment import Environment
from hami_tools.packages.installers import Change, Sources
from hami_tools.packages.names import requirements
from hami_tools.packages.wheels import platform_tags, plugins_in

TORCH_NOTE = """\
note: torch is the build of your package index; uv chooses that for the driver of this machine:
  uv pip install --torch-backend=auto {}"""


def install(arguments: argparse.Namespace) -> int:
    """Show what an installation changes, and install it unless it is only a preview."""
    if arguments.folder and arguments.index:
        raise PluginError("--from installs from a folder and --index from an index: give one of them")
    if not arguments.names and not arguments.folder:
        raise PluginError("expected the name of a plugin or backend, such as hami-onnx; or a folder: --from FOLDER")
    folder = os.path.abspath(arguments.folder) if arguments.folder else ""
    available = plugins_in(Path(folder)) if folder else []
    rules = policy_rules.read()
    reads_catalog = arguments.names or rules.require_attestation is not None
    known = catalog.load(arguments.catalog) if reads_catalog else load_local()
    wanted = _requirements(arguments.names, known, available) if arguments.names else available
    place = environment.chosen(user=arguments.user, target=arguments.target)
    environment.require_changeable(place, wanted)
    rules.plugins.require([_name_of(name) for name in wanted])
    installer, sources, remembered = installers.find(), Sources(arguments.index, folder), publishers.load()
    changes = installer.plan(wanted, sources, place, upgrade=arguments.upgrade)
    if "torch" in {change.name for change in changes} and not (arguments.index or folder or place.user or place.target):
        try:
            if remembered.keys() & {change.name for change in changes}:
                raise PluginError("uv does not say which files it takes, so that their publishers cannot be compared")
            with_uv, for_driver = installers.Uv(), Sources(torch_backend="auto")
            changes = with_uv.plan(wanted, for_driver, place, upgrade=arguments.upgrade)
            installer, sources = with_uv, for_driver
        except PluginError:  # also without uv, or with one that has no access to the index of pip
            print(TORCH_NOTE.format(shlex.join(wanted)), file=sys.stderr)
    rules.plugins.require([change.name for change in changes if change.name in rules.plugins.block])
    catalog.require_grades(map(_name_of, wanted), [change.name for change in changes])
    names = {*known.plugins, *remembered, *map(_name_of, wanted)}
    plugins = [change for change in changes if change.name in names]
    found = provenance.checked(plugins, installer, sources, known, rules)
    seen = publishers.require_same(plugins, found)
    if changes and not arguments.dry_run:
        installer.install(changes, sources, place)
        installers.require_installed(changes, place.folder)
        if place.target:
            _remove_old_metadata(Path(place.folder), changes)
        provenance.record(found, plugins, place.folder)
        publishers.remember(seen)
    _report(arguments, wanted, place, changes)
    return 0


def _requirements(names: Sequence[str], known: Catalog, available: Sequence[str]) -> list[str]:
    return requirements(names, known.owners("backends"), [CORE, *known.plugins, *available])


def _report(
    arguments: argparse.Namespace, wanted: Sequence[str], place: Environment, changes: Sequence[Change]
) -> None:
    if arguments.json:
        shown = [change.facts() for change in changes]
        print(json_of({"folder": place.folder, "changes": shown, "dry_run": arguments.dry_run}))
        return
    if not changes:
        versions = (f"{name} {installers.installed_version(name)}" for name in map(_name_of, wanted))
        print(
            f"nothing to change: {', '.join(versions)}" + ("" if arguments.upgrade else "; newer versions: --upgrade")
        )
        return
    print_table([[change.verb, change.name, change.arrow] for change in changes])
    if arguments.dry_run:
        print(f"nothing was changed; without --dry-run, this goes into {place.folder}")
        return
    print(f"installed into {place.folder}")
    for change in changes:
        if names := _backends_of(change.name, place):
            print(f"{change.name} provides {', '.join(names)}")
    if without_torch := [change.name for change in changes if _lacks_torch(change.name)]:
        print(f"torch is not installed, which {without_torch[0]} needs: hami install '{without_torch[0]}[torch]'")
    if os.path.realpath(place.folder) not in map(os.path.realpath, sys.path):
        print(f"to use it: export PYTHONPATH={shlex.quote(place.folder)}")
    if note := environment.tool_note([_name_of(name) for name in wanted]):
        print(note)


def _lacks_torch(name: str) -> bool:
    """Return whether a distribution leaves torch to an extra, because of its many builds, and there is none."""
    try:
        extras = metadata.metadata(name).get_all("Provides-Extra") or ()
    except Exception:  # not in the path of this Python
        return False
    return "torch" in extras and not installers.installed_version("torch")


def _name_of(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]


def _backends_of(name: str, place: Environment) -> list[str]:
    """Return the backends of a distribution that was just installed."""
    importlib.invalidate_caches()
    for found in distributions(name=name, path=[place.folder, *sys.path]):
        return sorted({entry.name for entry in found.entry_points if entry.group == "hami.backends"})
    return []


def _remove_old_metadata(folder: Path, changes: Sequence[Change]) -> None:
    """Remove the metadata of replaced versions, which `pip install --target` leaves in the folder."""
    for change in changes:
        for info in folder.glob(f"{change.name.replace('-', '_')}-*.dist-info"):
            if not info.name.startswith(f"{change.name.replace('-', '_')}-{change.new}."):
                shutil.rmtree(info)


def uninstall(arguments: argparse.Namespace) -> int:
    """Remove plugins, unless another package requires them."""
    names = list(dict.fromkeys(map(normalised, arguments.names)))
    found = {name: _removable(name) for name in names}
    for name in names:
        if others := [other for other in _dependents(name) if other not in names]:
            every = shlex.join([*names, *others])
            raise PluginError(f"{' and '.join(others)} requires {name}; to remove both: hami uninstall {every}")
    place = environment.chosen()
    environment.require_changeable(place, [])
    if not arguments.dry_run:
        installers.find().uninstall(names)
    if arguments.json:
        print(json_of({"removed": found, "dry_run": arguments.dry_run}))
    else:
        print_table([["remove", name, version] for name, version in found.items()])
        if arguments.dry_run:
            print("nothing was changed")
    return 0


def _removable(name: str) -> str:
    """Return the version of an installed plugin. Raises PluginError for anything that is not to be removed here."""
    if name == CORE:
        raise PluginError(f"{CORE} is the program that runs: remove it with {sys.executable} -m pip uninstall {CORE}")
    try:
        found = metadata.distribution(name)
        version, entry_points = found.version, found.entry_points
    except Exception as error:  # not installed, or a leftover folder
        raise PluginError(f"{name} is not installed; list the plugins that are: hami plugins") from error
    if not any(entry.group in GROUPS for entry in entry_points):
        raise PluginError(f"{name} is not a plugin: remove it with {sys.executable} -m pip uninstall {name}")
    folder = os.path.realpath(str(found.locate_file("")))
    if folder not in map(os.path.realpath, environment.managed_folders()):
        parts = sorted({file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "bin")})
        paths = shlex.join(os.path.join(folder, part) for part in parts)
        raise PluginError(f"{name} is in {folder}, from which pip cannot remove it: rm -r {paths}")
    return version


def _dependents(name: str) -> list[str]:
    """Return the installed distributions that require `name` without conditions."""
    others = {}
    for other in distributions():
        try:
            required = [normalised(_name_of(text)) for text in other.requires or () if ";" not in text]
            if name in required:
                others[normalised(other.metadata["Name"])] = True
        except Exception:  # damaged metadata of another package
            continue
    return sorted(others)


def download(arguments: argparse.Namespace) -> int:
    """Gather the wheels of plugins and of everything that they require, for a machine without a network."""
    wanted = _requirements(arguments.names, catalog.load(arguments.catalog), [])
    installer = installers.find()
    if not isinstance(installer, installers.Pip):
        raise PluginError(
            f"uv cannot download wheels; add pip to this environment: uv pip install --python {sys.executable} pip"
        )
    options = [
        word for platform in arguments.platform for tag in platform_tags(platform) for word in ("--platform", tag)
    ]
    if arguments.python_version:
        options += ["--python-version", arguments.python_version, "--implementation", "cp"]
    folder = Path(arguments.to)
    folder.mkdir(parents=True, exist_ok=True)
    installer.download([CORE, *wanted], Sources(arguments.index), str(folder), options)
    files = sorted(file.name for file in folder.glob("*.whl"))
    if arguments.json:
        print(json_of({"folder": str(folder), "files": files}))
    else:
        print("\n".join(files))
        names = shlex.join(_name_of(name) for name in wanted)
        print(f"to install without a network: hami install --from {shlex.quote(str(folder))} {names}")
    return 0

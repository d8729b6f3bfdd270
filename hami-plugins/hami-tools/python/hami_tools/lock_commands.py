"""The commands `hami lock` and `hami sync`: the same files on another machine, checked by their hashes."""

from __future__ import annotations

import argparse
import importlib.metadata as metadata
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import hami
from hami.cli import json_of, print_table, printable
from hami.packages import CORE, load_local, normalised

from hami_tools.packages import catalog, environment, installers, lock, policy_rules, provenance, publishers
from hami_tools.packages.installers import Change, Sources, installed_version, installed_versions
from hami_tools.packages.verification import is_of_file, origin_of
from hami_tools.whole_file import written_whole


def write_lock(arguments: argparse.Namespace) -> int:
    """Write a pylock.toml with the installed versions of hami-core, of the plugins and of their requirements."""
    installer = installers.find()
    plugins = sorted({normalised(plugin.distribution) for plugin in hami.plugins() if plugin.version})
    wanted = [f"{CORE}=={hami.__version__}", *(f"{name}=={installed_version(name)}" for name in plugins)]
    _require_files([CORE, *plugins])
    locked = installer.resolve(wanted, installed_versions(), Sources(arguments.index))
    _require_files([each.name for each in locked])
    path = arguments.to
    with written_whole(path) as new:
        new.write_text(lock.render(locked), "utf-8")
    if arguments.json:
        print(json_of({"file": path, "packages": [each._asdict() for each in locked]}))
    else:
        print_table([["lock", each.name, each.version] for each in sorted(locked)])
        print(f"wrote {path}; to install it on another machine: hami sync {path}")
    return 0


def _require_files(names: Iterable[str]) -> None:
    """Raise PluginError for a package from a folder or a repository: an index may have other files of its version."""
    for name in names:
        with suppress(metadata.PackageNotFoundError):
            origin = metadata.distribution(name).read_text("direct_url.json") or ""
            source, editable = origin_of(origin)
            if origin and not is_of_file(origin):
                raise hami.PluginError(
                    f"{name} is {'an editable' if editable else 'an'} installation of {printable(source)}, and a lock "
                    "has only files; nothing was written; build a wheel, add it to an index, and install it from there"
                )


def sync(arguments: argparse.Namespace) -> int:
    """Install the files of a pylock.toml that this environment does not have; nothing is removed."""
    locked = lock.read(Path(arguments.file))
    rules = policy_rules.read()
    rules.plugins.require([each.name for each in locked if each.name in rules.plugins.block or rules.plugins.problem])
    catalog.require_grades([], [each.name for each in locked])
    changes = [
        Change(each.name, old, *each[1:]) for each in locked if (old := installed_version(each.name)) != each.version
    ]
    place = environment.chosen()
    folder = os.path.abspath(arguments.folder) if arguments.folder else ""
    known = load_local() if rules.require_attestation is None else catalog.load()
    sources = Sources((), folder)
    names = {*known.plugins, *publishers.load()}
    plugins = [change for change in changes if change.name in names]
    found = provenance.checked(plugins, installers.find(), sources, known, rules) if plugins else {}
    seen = publishers.require_same(plugins, found)
    if changes and not arguments.dry_run:
        environment.require_changeable(place, [])
        lines = [change.locked().requirement(by_name=bool(folder)) for change in changes]
        installers.find().install_locked(lines, sources, place)
        installers.require_installed(changes, place.folder)
        provenance.record(found, plugins, place.folder)
        publishers.remember(seen)
    if arguments.json:
        print(json_of({"changes": [change.facts() for change in changes], "dry_run": arguments.dry_run}))
    elif not changes:
        print(f"nothing to change: this environment has the {len(locked)} packages of {arguments.file}")
    else:
        print_table([[change.verb, change.name, change.arrow] for change in changes])
        if arguments.dry_run:
            print("nothing was changed")
    return 0

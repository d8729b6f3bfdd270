"""Declares the arguments of the commands that find, install and remove plugins."""

from __future__ import annotations

import argparse
from typing import Any

from hami.cli import add_command


def add_package_commands(commands: Any) -> None:
    """Add the commands that find, install, remove, download and verify plugins."""
    install = add_command(
        commands,
        "install",
        "hami_tools.install:install",
        "install plugins, by their names or those of their backends",
        examples=["hami install hami-onnx"],
    )
    install.add_argument("names", nargs="*", metavar="NAME", help="a plugin such as hami-onnx, or a backend")
    install.add_argument("--upgrade", action="store_true", help="install the newest version")
    install.add_argument("--dry-run", action="store_true", help="show what would change, and change nothing")
    place = install.add_mutually_exclusive_group()
    place.add_argument("--user", action="store_true", help="install for this user only")
    place.add_argument("--target", metavar="FOLDER", help="install into this folder, for PYTHONPATH")
    install.add_argument("--from", dest="folder", metavar="FOLDER", help="install from a folder of wheels, offline")
    _add_index(install)
    _add_catalog(install)

    uninstall = add_command(
        commands,
        "uninstall",
        "hami_tools.install:uninstall",
        "remove plugins",
        examples=["hami uninstall hami-onnx --dry-run"],
    )
    uninstall.add_argument("names", nargs="+", metavar="NAME", help="name of a plugin")
    uninstall.add_argument("--dry-run", action="store_true", help="show what would be removed, and change nothing")

    search = add_command(
        commands,
        "search",
        "hami_tools.search:search",
        "list the plugins in the catalogue that match a word",
        examples=["hami search onnx"],
    )
    search.add_argument("word", nargs="?", metavar="WORD", help="part of a name or description; default: list all")
    _add_catalog(search)

    add_command(
        commands,
        "verify-plugins",
        "hami_tools.verify:verify_plugins",
        "compare the files of plugins with their recorded hashes, and show who published them",
        examples=["hami verify-plugins"],
    )

    trust = add_command(
        commands,
        "trust",
        "hami_tools.trust:trust",
        "list the remembered publishers of plugins, or confirm another one",
        examples=["hami trust", "hami trust acme-words --publisher https://github.com/acme/words"],
    )
    trust.add_argument("name", nargs="?", metavar="NAME", help="name of a plugin; default: list all")
    whom = trust.add_mutually_exclusive_group()
    whom.add_argument("--publisher", metavar="REPOSITORY", help="the repository that its attestations must name")
    whom.add_argument("--source", metavar="SERVER", help="the server of its files, or local, if they are not attested")
    whom.add_argument("--forget", action="store_true", help="remember the publisher of the next installation")

    download = add_command(
        commands,
        "download",
        "hami_tools.install:download",
        "download plugins, for a machine without a network",
        examples=["hami download hami-onnx --to wheels/"],
    )
    download.add_argument("names", nargs="+", metavar="NAME", help="a plugin such as hami-onnx, or a backend")
    download.add_argument("--to", required=True, metavar="FOLDER", help="where to put the wheels")
    download.add_argument(
        "--platform",
        action="append",
        default=[],
        metavar="PLATFORM",
        help="x86_64, aarch64 or a manylinux platform, instead of this machine's; repeatable",
    )
    download.add_argument("--python-version", metavar="VERSION", help="such as 3.12, instead of this Python's")
    _add_index(download)
    _add_catalog(download)


def add_lock_commands(commands: Any) -> None:
    """Add the commands that write and install a lock."""
    lock = add_command(
        commands,
        "lock",
        "hami_tools.lock_commands:write_lock",
        "write a pylock.toml of hami-core, the plugins and what they require",
        examples=["hami lock --to pylock.toml"],
    )
    lock.add_argument("--to", default="pylock.toml", metavar="FILE", help="where to write it; default: ./pylock.toml")
    _add_index(lock)

    sync = add_command(
        commands,
        "sync",
        "hami_tools.lock_commands:sync",
        "install the files of a pylock.toml, checked by their hashes",
        examples=["hami sync pylock.toml"],
    )
    sync.add_argument("file", nargs="?", default="pylock.toml", metavar="FILE", help="default: ./pylock.toml")
    sync.add_argument("--dry-run", action="store_true", help="show what would change, and change nothing")
    sync.add_argument("--from", dest="folder", metavar="FOLDER", help="take the files from a folder, offline")


def _add_index(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--index",
        action="append",
        default=[],
        metavar="URL",
        help="package index, instead of the one in your settings; repeatable",
    )


def _add_catalog(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--catalog", metavar="URL|FILE", help="catalogue of plugins, instead of that of hami-core")

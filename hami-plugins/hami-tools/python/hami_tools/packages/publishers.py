"""Remembers who published each plugin that was installed, and refuses another publisher until the user confirms it.

A publisher is the repository of a verified attestation. For a file without one it is the server, or the folders of this
machine, that the file came from.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from hami import ConfigError, PluginError
from hami.cli import printable
from hami.packages import make_private, read_file

from hami_tools.packages import attestations
from hami_tools.packages.attestations import Origin, Unverified
from hami_tools.packages.installers import Change
from hami_tools.whole_file import written_whole

FORMAT = 1
LOCAL = "a folder of this machine"


class Remembered(NamedTuple):
    """What is known about a plugin since it was first installed or confirmed."""

    source: str  # the server of its files, or LOCAL
    publisher: str = ""  # the repository of its attestations; empty: the files had none
    file: str = ""  # the newest that was installed
    sha256: str = ""

    @property
    def identity(self) -> str:
        return self.publisher or self.source


class Seen(NamedTuple):
    """The publishers of an installation, and what was remembered when they were compared with it."""

    known: Mapping[str, Remembered]
    now: Mapping[str, Remembered]


def path() -> Path:
    """Return the file with what is remembered for this user."""
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(folder, "hami", "publishers.json")


def load() -> dict[str, Remembered]:
    """Return what is remembered, by name of the plugin. Raises PluginError for a damaged file."""
    try:
        table = json.loads(read_file(path()))
        if table["format"] != FORMAT:
            raise ValueError(f"its format is {table['format']!r}, expected {FORMAT}")
        return {
            str(name): Remembered(*(str(entry.get(field, "")) for field in Remembered._fields))
            for name, entry in table["plugins"].items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise PluginError(
            f"{path()}, which remembers the publishers of plugins, cannot be read: {error}; correct it, or "
            "remove it to remember those of the next installations"
        ) from error


def require_same(changes: Iterable[Change], found: Mapping[str, Origin]) -> Seen:
    """Return what to remember about plugins; raise PluginError for a publisher that is not the known one."""
    known = load()
    seen = {each.name: _seen(each, found.get(each.name)) for each in changes if each.url}
    for name, now in seen.items():
        if name in known:
            _compare(name, known[name], now, found.get(name))
    return Seen(known, seen)


def _seen(change: Change, origin: Origin | None) -> Remembered:
    parts = urlsplit(change.url)
    source = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else LOCAL
    publisher = ""
    if origin is not None:
        with contextlib.suppress(Unverified):
            publisher = attestations.publishers(origin)[0].source
    return Remembered(source, publisher, change.file, change.sha256)


def _compare(name: str, before: Remembered, now: Remembered, origin: Origin | None) -> None:
    remedy = f"if you expect this, confirm it: hami trust {name} {_option(now)}"
    changed = before.file == now.file and before.sha256 and now.sha256 and before.sha256 != now.sha256
    if changed and now.source != LOCAL:  # a wheel that was built here may be built again
        raise PluginError(
            f"{name}: {printable(now.file)} has another content than when it was installed before (sha256 "
            f"{now.sha256}, before {before.sha256}); nothing was changed\n  {remedy}"
        )
    if before.publisher and before.publisher != now.publisher:
        why = "" if now.publisher else f" ({_reason(origin)})"
        raise PluginError(
            f"{name} was published by {printable(before.publisher)} until now, and this file is from "
            f"{printable(now.identity)}{why}; nothing was changed\n  {remedy}"
        )
    if not before.publisher and before.source != now.source:
        raise PluginError(
            f"{name} came from {printable(before.source)} until now, and this file is from {printable(now.source)}; "
            f"nothing was changed\n  {remedy}"
        )


def _option(now: Remembered) -> str:
    if now.publisher:
        return f"--publisher {printable(now.publisher)}"
    return "--source local" if now.source == LOCAL else f"--source {printable(now.source)}"


def _reason(origin: Origin | None) -> str:
    try:
        if origin is not None:
            attestations.publishers(origin)
    except Unverified as reason:
        return printable(str(reason))
    return "its installer does not say which file it takes"


def remember(seen: Seen) -> None:
    """Remember plugins that were just installed. A folder that cannot be written stays as it is.

    An entry that has changed since the comparison stays: the user may have confirmed a publisher meanwhile.
    """

    def update(known: dict[str, Remembered]) -> None:
        known.update({name: now for name, now in seen.now.items() if known.get(name) == seen.known.get(name)})

    with contextlib.suppress(OSError, ConfigError):
        change(update)


def change(function: Callable[[dict[str, Remembered]], Any]) -> None:
    """Change what is remembered; one process at a time. Raises OSError or ConfigError if not."""
    file = path()
    make_private(file.parent)
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = load()
        function(known)
        table = {"format": FORMAT, "plugins": {name: known[name]._asdict() for name in sorted(known)}}
        with written_whole(file) as new:
            new.write_text(json.dumps(table, indent=1) + "\n", "utf-8")

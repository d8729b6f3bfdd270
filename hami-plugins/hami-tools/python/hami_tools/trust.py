"""The command `hami trust`: shows and confirms the publishers of plugins."""

from __future__ import annotations

import argparse
from urllib.parse import urlsplit

from hami import PluginError
from hami.cli import json_of, print_table, printable
from hami.packages import normalised

from hami_tools.packages import publishers
from hami_tools.packages.publishers import LOCAL, Remembered


def trust(arguments: argparse.Namespace) -> int:
    """List the remembered publishers; or confirm another one for a plugin, or forget it."""
    if arguments.name is None:
        _list(arguments)
        return 0
    name = normalised(arguments.name)
    if not (arguments.publisher or arguments.source or arguments.forget):
        raise PluginError(
            f"say whom to trust for {name}: --publisher REPOSITORY, --source SERVER, or --forget to remember the "
            "publisher of the next installation"
        )
    before = now = None

    def change(known: dict[str, Remembered]) -> None:
        nonlocal before, now
        before = known.pop(name, None)
        if before is None and arguments.forget:
            raise PluginError(f"no publisher of {name} is remembered; list those that are: hami trust")
        if not arguments.forget:
            now = known[name] = _confirmed(arguments, before)

    try:
        publishers.change(change)
    except OSError as error:
        raise PluginError(f"cannot write {publishers.path()}: {error.strerror}") from error
    if arguments.json:
        print(json_of({"name": name, "before": before and before._asdict(), "now": now and now._asdict()}))
    elif now is None:
        print(f"{name}: the publisher of the next installation will be remembered")
    else:
        print(f"{name} is expected from {printable(now.identity)}" + (f", not {before.identity}" if before else ""))
    return 0


def _confirmed(arguments: argparse.Namespace, before: Remembered | None) -> Remembered:
    """Return the entry for a publisher that the user names. The file that was installed before does not count."""
    if arguments.publisher:
        return Remembered(before.source if before else "", arguments.publisher.rstrip("/").lower())
    if arguments.source == "local":
        return Remembered(LOCAL)
    parts = urlsplit(arguments.source)
    if parts.scheme not in ("https", "http") or not parts.netloc or parts.path.strip("/"):
        raise PluginError(
            f'--source takes a server such as https://files.example, or local, got "{printable(arguments.source)}"'
        )
    return Remembered(f"{parts.scheme}://{parts.netloc}")


def _list(arguments: argparse.Namespace) -> None:
    known = publishers.load()
    if arguments.json:
        print(json_of({name: each._asdict() for name, each in known.items()}))
    elif known:
        rows = [
            [name, printable(each.identity), "attested" if each.publisher else "not attested", printable(each.file)]
            for name, each in known.items()
        ]
        print_table(rows, ["plugin", "from", "", "newest file"])
    else:
        print("no publishers are remembered yet; hami install and hami sync remember them")

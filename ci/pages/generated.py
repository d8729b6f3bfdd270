"""Writes the pages that are generated: python generated.py FOLDER, with a Python that has hami-core and the plugins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from importlib import metadata
from pathlib import Path
from typing import Any

KEYS = """\
---
hide: [toc]
---

# Parameters of all backends

A parameter of a backend is a key of its node: [scopes](expressions.md#scopes) states which backends read it.
[Configuration](configuration.md) describes the keys that every node has. Each word that you type above the table hides
the rows without it.

This page is the output of `hami backends "*" --json`. Plugins with an engine of hundreds of megabytes are described on
their own pages.

<div class="filtered" markdown>

| parameter | backend | package | meaning |
|---|---|---|---|
"""
PLUGINS = """\
# Plugins

Each plugin is a package with a version of its own. [Plugins](../explanation/plugins.md) explains how HAMi finds them,
and [compatibility](../reference/compatibility.md) which versions work together. The backends of the core have
[their own reference](../reference/backends.md).
"""
API = """\
# Python API

Every public name of the module `hami`, generated from its docstrings. [Requests](requests.md) describes calls, errors
and timeouts, [types](types.md) the values of requests, and [write a backend](../howto/write-a-backend.md) the interface
of backends.
"""
COMMANDS = """\
# Options of the commands

What `--help` prints. [Command line](command-line.md) explains the commands.
"""


def hami(*arguments: str) -> str:
    env = {**os.environ, "COLUMNS": "82", "NO_COLOR": "1"}
    return subprocess.run([sys.executable, "-m", "hami", *arguments], env=env, check=True, stdout=-1, text=True).stdout


def cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def keys_page(backends: list[dict[str, Any]]) -> str:
    rows = sorted(
        (param["text"], each["name"], each["owner"], param["help"]) for each in backends for param in each["params"]
    )
    lines = [f"| `{cell(text)}` | {name} | {owner} | {cell(said)} |\n" for text, name, owner, said in rows]
    return f"{KEYS}{''.join(lines)}\n</div>\n"


def plugins_page(backends: list[dict[str, Any]], packages: Path) -> str:
    own: dict[str, list[str]] = defaultdict(list)
    for each in backends:
        summary = (each["doc"] or "").partition("\n\n")[0]
        own[each["owner"]].append(f"| `{each['name']}` | {cell(summary)} |\n")
    parts = [PLUGINS]
    for package in sorted(path.parent.name for path in packages.glob("*/pyproject.toml")):
        parts.append(f"\n## [{package}](../../../hami-plugins/{package}/README.md)\n")
        try:
            parts.append(f"\n{metadata.metadata(package)['Summary']}\n")
        except metadata.PackageNotFoundError:  # one with a large engine, or tools for authors
            continue
        if own[package]:
            parts += ["\n| backend | what it does |\n|---|---|\n", *sorted(own[package])]
    return "".join(parts)


def api_page() -> str:
    import hami

    def directive(name: str) -> str:
        inherited = "    options:\n      inherited_members: true\n" if name == "Pipe" else ""
        return f"\n::: hami.{name}\n{inherited}"

    public = [name for name in hami.__all__ if not name.startswith("_")]
    classes = {name for name in public if isinstance(getattr(hami, name), type)}
    errors = [name for name in public if name in classes and issubclass(getattr(hami, name), Exception)]
    groups = {
        "Names": [name for name in public if name not in errors],
        "Types in annotations": [f"types.{name}" for name in hami.types.__all__],
        "Batches": [f"batching.{name}" for name in hami.batching.__all__],
        "Native code": [f"native.{name}" for name in hami.native.__all__],
        "Statistics": ["observe.NodeStats", "observe.NodePolicy", "observe.LaneStats"],
        "Errors": errors,
    }
    pages = "".join(f"\n## {title}\n{''.join(map(directive, names))}" for title, names in groups.items())
    return f"{API}{pages}\n## Tests of backends\n\n::: hami_build.testing\n"


def commands_page() -> str:
    from hami._cli.main import _parser
    from hami_tools.commands import add_commands

    _, commands = _parser()
    add_commands(commands)
    return COMMANDS + "".join(
        f"\n## hami {name}".rstrip() + f"\n\n```text\n{hami(*name.split(), '--help').rstrip()}\n```\n"
        for name in ["", *sorted(commands.choices)]
    )


def main() -> None:
    folder = Path(sys.argv[1])
    backends = json.loads(hami("backends", "*", "--json"))
    pages = {
        "reference/all-keys.md": keys_page(backends),
        "plugins/index.md": plugins_page(backends, Path(__file__).parents[2] / "hami-plugins"),
        "reference/python-api.md": api_page(),
        "reference/command-line-help.md": commands_page(),
    }
    for name, text in pages.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()

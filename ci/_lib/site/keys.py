"""The table of all configuration keys: those of nodes and of backends, of the core and of the plugins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from . import plugin_keys
from .declarations import Declaration, declared, default_in_a_table
from .pages import DOCS

PLACE = "reference/all-keys.md"
TOP = """\
---
hide: [toc]
---

# All configuration keys

The keys of nodes and the parameters of every backend, in the core and in the plugins of this repository. A parameter of
a backend is a key of its node: [scopes](expressions.md#scopes) states which backends read it. Each word that you type
above the table hides the rows without it.

This page is generated from the declarations of the backends.

<div class="filtered" markdown>

| key | where | type | default | meaning |
|---|---|---|---|---|
"""
_PART = re.compile(r"<!-- registry (.+?) -->\n(.*?)<!-- end -->\n", re.DOTALL)
_ROW = re.compile(r"^\| `(.+?)` \| (.*) \|$", re.MULTILINE)
_LINK = re.compile(r"\]\((?=#)")


class Row(NamedTuple):
    """One key at one place; all cells are Markdown."""

    key: str
    where: str
    type: str
    default: str
    meaning: str

    def line(self) -> str:
        return f"| {' | '.join(self)} |\n"


def page(root: Path) -> str:
    """Return the Markdown of the page."""
    rows = [*node_rows(root), *core_rows(root), *plugin_rows(root)]
    rows.sort(key=lambda row: (row.key.strip("`").lower(), _order(row.where), row.where))
    return f"{TOP}{''.join(row.line() for row in rows)}\n</div>\n"


def _order(where: str) -> int:
    """Return the position among rows of one key: the node, then the core, then the plugins."""
    return 0 if "configuration.md" in where else 2 if "plugins/" in where else 1


def node_rows(root: Path) -> list[Row]:
    """Return the keys that every node has, from the tables of the page about configurations."""
    text = (root / DOCS / "reference" / "configuration.md").read_text("utf-8")
    top = [
        Row(f"`{_plain(key)}`", "[top level](configuration.md#top-level-names)", "", "", _reachable(meaning))
        for key, meaning in _table(text, "Top-level names")
        if "`" in key
    ]
    nodes = [
        Row(
            f"`{_plain(key)}`",
            f"[node](configuration.md#{_anchor(key) or 'keys-of-a-node'})",
            type_,
            f"`{default}`" if re.fullmatch(r"\d+|true|false", default) else default.replace("see below", "see there"),
            _reachable(meaning),
        )
        for key, type_, default, meaning in _table(text, "Keys of a node")
    ]
    if not top or not nodes:
        raise ValueError("configuration.md has no table of top-level names or of the keys of a node")
    return [*top, *nodes]


def core_rows(root: Path) -> list[Row]:
    """Return the parameters of the core's backends, from the generated parts of their page."""
    text = (root / DOCS / "reference" / "backends.md").read_text("utf-8")
    of_nodes = {row.key.strip("`") for row in node_rows(root)}
    scheduling = text.partition("\n## Scheduling\n")[2]
    rows = []
    for name, part in _PART.findall(text):
        for written, meaning in _ROW.findall(part):
            declaration = declared(f"{written} '{_escaped(meaning)}'")
            if f"<!-- registry {name} -->" in scheduling and declaration.key in of_nodes:
                continue  # a key of the node, which the page about configurations describes
            rows.append(_row(declaration, f"[{name}](backends.md#{name.lower()})"))
    if not rows:
        raise ValueError("backends.md has no generated parts")
    return rows


def plugin_rows(root: Path) -> list[Row]:
    """Return the parameters of every backend of every plugin, from their declarations in the sources."""
    return [
        _row(declaration, f"[{backend.name}](../plugins/{plugin}.md), {plugin}")
        for plugin, backends in plugin_keys.every(root).items()
        for backend in backends
        for declaration in backend.parameters
    ]


def _row(declaration: Declaration, where: str) -> Row:
    type_ = declaration.type
    if declaration.values and ".." in declaration.values:
        type_ += f", {_in_words(declaration.values)}"
    elif declaration.values:
        type_ = ", ".join(f"`{value.strip()}`" for value in declaration.values.split(","))
    return Row(f"`{declaration.key}`", where, type_, default_in_a_table(declaration), _cell(declaration.meaning))


def _in_words(values: str) -> str:
    least, _, most = values.partition("..")
    return f"{least} to {most}" if least and most else f"at least {least}" if least else f"at most {most}"


def _table(text: str, heading: str) -> Iterator[list[str]]:
    """Yield the cells of each row of the first table below a heading."""
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    table = re.search(r"^\|.*\n\|[-:| ]+\|\n((?:\|.*\n)+)", section, re.MULTILINE)
    for line in table[1].splitlines() if table else ():
        yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]


def _plain(cell: str) -> str:
    return re.sub(r"\[`?(.*?)`?\]\(.*?\)", r"\1", cell).strip("`")


def _anchor(cell: str) -> str:
    found = re.search(r"\]\(#(.+?)\)", cell)
    return found[1] if found else ""


def _reachable(cell: str) -> str:
    """Let links to headings of the page about configurations lead there."""
    return _LINK.sub("](configuration.md", cell)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())

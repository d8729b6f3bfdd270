"""Finds the links of a Markdown document to other files of this repository, and those that are broken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
_DEFINITION = re.compile(r"^\[[^\]\n]+\]: ([^#\s]*)(?:#(\S*))?$", re.MULTILINE)  # of links as [text][name]
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def linked_files(document: Path) -> set[Path]:
    """Return the files that the document links to."""
    return {target for _, target, _ in _links(document)}


def broken_links(document: Path) -> list[str]:
    """Return every relative link whose file, or whose heading in a Markdown file, does not exist."""
    return [link for link, target, heading in _links(document) if not _exists(target, heading)]


def _links(document: Path) -> Iterator[tuple[str, Path, str]]:
    """Yield each relative link as it is written, its file, and the heading it leads to ("" for none)."""
    text = _FENCED.sub("", document.read_text("utf-8"))
    for found in (*_LINK.finditer(text), *_DEFINITION.finditer(text)):
        if "://" not in found[1]:
            written = f"{found[1]}#{found[2]}" if found[2] else found[1]
            yield written, (document.parent / found[1]).resolve() if found[1] else document, found[2] or ""


def _exists(target: Path, heading: str) -> bool:
    return target.is_file() and (not heading or target.suffix != ".md" or heading in _anchors(target))


def _anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    headings = _HEADING.findall(_FENCED.sub("", page.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}

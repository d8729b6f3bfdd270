"""Reads changelogs: a heading for each version with the day of its release, the newest version first."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

NOT_RELEASED = "not released yet"
HEADING = re.compile(r"^## (\d[^\s,]*)(?:, (.+))?$", re.MULTILINE)


@dataclass(frozen=True)
class Entry:
    version: str
    released: str  # the day; "" before the release
    text: str


def newest(changelog: Path) -> Entry | None:
    """Return the newest version with its text; None if the changelog names no version."""
    text = changelog.read_text("utf-8") if changelog.is_file() else ""
    headings = list(HEADING.finditer(text))
    if not headings:
        return None
    end = headings[1].start() if len(headings) > 1 else len(text)
    said = headings[0].group(2) or ""
    body = text[headings[0].end() : end].strip()
    return Entry(headings[0].group(1), "" if said == NOT_RELEASED else said, body)

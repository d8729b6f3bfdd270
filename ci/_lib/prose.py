"""Checks the prose of the repository for phrases that a reader with English as a second language stumbles over.

Only the standard library is used: any Python from 3.10 on runs this.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .prose_rules import RULES
from .prose_texts import Text, texts_of

FROZEN = ("tests/abi/golden/",)  # copies of released files, which never change


class Finding(NamedTuple):
    """One phrase that must be rewritten."""

    path: str
    line: int
    phrase: str
    suggestion: str

    def __str__(self) -> str:
        return f'{self.path}:{self.line}: "{self.phrase}" -> {self.suggestion}'


def check_text(text: Text, path: str) -> Iterator[Finding]:
    """Apply every rule to one piece of prose."""
    for rule in RULES:
        for match in rule.found_in(text.text):
            phrase = match.group()
            offset = match.start() + len(phrase) - len(phrase.lstrip(" \n*_"))
            yield Finding(path, text.line_at(offset), " ".join(phrase.split()).strip("*_ "), rule.suggestion)


def check_file(path: Path, shown: str) -> list[Finding]:
    """Every finding of one file, by line."""
    if shown.startswith(FROZEN):
        return []
    found = (finding for text in texts_of(path) for finding in check_text(text, shown))
    return sorted(dict.fromkeys(found), key=lambda finding: finding.line)

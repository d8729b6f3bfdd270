"""Splits a Markdown document into its code blocks, for the tests that run them.

A comment directly before a block is a directive, which the rendered page does not show:

    <!-- file: shout.py -->      the block is written to that file; a Python block then runs only when it is imported
    <!-- imports: shout.py -->   for TOML: the arguments of `hami check --import`
    <!-- quotes: a.cpp -->       the complete text of that file in the folder of the document
    <!-- needs: hami_ocr -->     the block is skipped if one of these modules is not installed
    <!-- machine: fresh -->      tests/wheels runs the commands, from here on in a fresh system
    <!-- skip: reason -->        the block never runs, for this reason
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
KNOWN = {"file", "imports", "machine", "needs", "quotes", "skip"}
_DIRECTIVE = re.compile(r"<!-- (\w+): (.*) -->")


class Block(NamedTuple):
    """One fenced block: `line` is the line of its opening fence, `text` ends with a line break."""

    document: Path
    line: int
    language: str
    text: str
    directives: dict[str, str]

    @property
    def place(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def blocks_of(document: Path, *, unnamed: bool = False) -> list[Block]:
    """Return every fenced block; raise ValueError for one that the tests could miss.

    If `unnamed`, a block need not name its language: the READMEs of plugins have such blocks.
    """
    blocks: list[Block] = []
    directives: dict[str, str] = {}
    opened: tuple[int, str] | None = None
    lines: list[str] = []
    for number, line in enumerate(document.read_text("utf-8").splitlines(), start=1):
        if opened is None and (found := _DIRECTIVE.fullmatch(line)):
            if found[1] not in KNOWN:
                raise ValueError(f"{document}:{number}: unknown directive {found[1]}")
            directives[found[1]] = found[2]
        elif opened is None and line.lstrip().startswith(("```", "~~~")):
            language = line[3:].strip()
            if not line.startswith("```") or not (language or unnamed):
                raise ValueError(f"{document}:{number}: a code block starts at the margin and names its language")
            opened = number, language
        elif opened is None:
            if directives and line.strip():
                raise ValueError(f"{document}:{number}: the directive before this line does not belong to a code block")
        elif line == "```":
            text = "".join(f"{line}\n" for line in lines)
            blocks.append(Block(document, opened[0], opened[1], text, directives))
            opened, lines, directives = None, [], {}
        else:
            lines.append(line)
    if opened is not None:
        raise ValueError(f"{document}:{opened[0]}: this code block is never closed")
    return blocks

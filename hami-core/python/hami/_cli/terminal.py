"""Tables and lines for terminals, and the same as plain text for other programs."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence

from hami._cli.show import aligned
from hami._text import visible

MIN_COLUMN = 8  # characters; columns below are hard to read


def print_table(rows: Sequence[Sequence[str]], header: Sequence[str] | None = None) -> None:
    """Print rows in columns. On a terminal, the last column is wrapped, and a narrow one shows each cell in a line."""
    rows = [[visible(cell) for cell in row] for row in rows]
    width = _width()
    if header and width and len(header) * MIN_COLUMN > width:
        for number, row in enumerate(rows):
            lines = [f"{name}: {cell}" for name, cell in zip(header, row, strict=True)]
            print_lines(["", *lines] if number else lines)
        return
    table = [header, *rows] if header else rows
    last = sum(max(map(len, column)) + 2 for column in [*zip(*table, strict=True)][:-1])
    print_lines(aligned(table), last if width - last >= MIN_COLUMN else 2)


def print_lines(lines: Iterable[str], indent: int = 2) -> None:
    """Print lines; on a terminal, those that are too long are wrapped between words."""
    width = _width()
    for line in lines:
        wraps = width and len(line) > width
        print("\n".join(textwrap.wrap(line, width, subsequent_indent=" " * indent)) if wraps else line)


def _width() -> int:
    """Return the columns of the terminal; 0 if the output is not one."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0

"""Tables for terminals, with rich (hami-core[rich]) if it is installed."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from hami._cli.show import aligned
from hami._text import visible

MIN_COLUMN = 8  # characters; columns below are hard to read


def print_table(rows: Sequence[Sequence[str]], header: Sequence[str] | None = None) -> None:
    """Print rows in columns, or one cell in each line on a narrow terminal.

    The output is plain, for other programs, if it is not a terminal or rich is missing.
    """
    rows = [[visible(cell) for cell in row] for row in rows]
    if header and sys.stdout.isatty() and len(header) * MIN_COLUMN > shutil.get_terminal_size().columns:
        for number, row in enumerate(rows):
            print_lines([*([""] if number else []), *_record(row, header)])
        return
    rich_table = _rich("rich.table") if sys.stdout.isatty() else None
    if rich_table is None:
        print("\n".join(aligned([header, *rows] if header else rows)))
        return
    table = rich_table.Table(box=None, show_header=header is not None, pad_edge=False)
    for name in header or rows[0] if rows else ():
        table.add_column(name)
    for row in rows:
        table.add_row(*(_rich("rich.text").Text(cell) for cell in row))
    _rich("rich.console").Console().print(table)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines; on a terminal, those that are too long are wrapped between words."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for line in lines:
        print("\n".join(textwrap.wrap(line, width, subsequent_indent="  ")) if width and len(line) > width else line)


def _record(row: Sequence[str], header: Sequence[str]) -> list[str]:
    """Return a row of a table that is wider than the terminal, with one line for each cell."""
    return [f"{name}: {cell}" for name, cell in zip(header, row, strict=True)]


def _rich(module: str) -> Any:
    """Import a module of rich, or return None."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError:
        return None

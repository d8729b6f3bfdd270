"""Tables for terminals, with rich (hami-core[rich]) if it is installed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from hami._cli.show import aligned


def print_table(rows: Sequence[Sequence[str]], header: Sequence[str] | None = None) -> None:
    """Print rows in columns; as plain lines, for other programs, if the output is not a terminal or rich is missing."""
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


def _rich(module: str) -> Any:
    """Import a module of rich, or return None."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError:
        return None

"""Progress bars and tables: formatted on a terminal, plain lines in a pipe."""

from __future__ import annotations

import io

import pytest
from hami._cli import terminal as _terminal
from hami._cli.terminal import print_table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


ROWS = [["Identity", "hami-core", "Sets `result` to [data]."], ["X", "", "b"]]


def test_tables_are_plain_lines_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(ROWS, ["name", "owner", ""])
    assert capsys.readouterr().out == (
        "name      owner\nIdentity  hami-core  Sets `result` to [data].\nX                    b\n"
    )


def test_tables_are_plain_lines_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    monkeypatch.setattr(_terminal, "_rich", lambda module: None)
    print_table([["a", "b"]])
    assert terminal.getvalue() == "a  b\n"


def test_rich_wraps_long_cells_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    print_table(ROWS)
    lines = terminal.getvalue().splitlines()
    assert lines[0].startswith("Identity")
    assert max(map(len, lines)) <= 30
    assert len(lines) > len(ROWS)
    assert "[data]" in terminal.getvalue()  # no markup

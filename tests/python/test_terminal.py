"""Tables: wrapped on a terminal, plain lines in a pipe."""

from __future__ import annotations

import io

import pytest
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


def test_a_terminal_wraps_the_last_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "34")
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    print_table(ROWS)
    assert terminal.getvalue().splitlines() == [
        "Identity  hami-core  Sets `result`",
        "                     to [data].",
        "X                    b",
    ]


def test_a_terminal_wraps_whole_lines_if_the_last_column_has_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    print_table(ROWS)
    assert terminal.getvalue().splitlines()[:3] == ["Identity  hami-core", "  Sets `result` to", "  [data]."]

"""hami.progress: a bar on a terminal; silent anywhere else."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from hami import progress as _progress
from hami.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        """Return what each drawing left in the line."""
        before, *lines = self.getvalue().split("\r\x1b[K")
        assert before == ""
        return lines


OpenTerminal = Callable[[], Terminal]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, which tests set; the terminal has 80 columns."""
    now = [0.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: now[0])
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    return now


@pytest.fixture
def open_terminal(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> OpenTerminal:
    """Make standard error a terminal. A function, because pytest replaces standard error between set-up and test."""

    def open_terminal() -> Terminal:
        monkeypatch.setattr("sys.stderr", terminal := Terminal())
        return terminal

    return open_terminal


def test_the_bar_shows_the_count_and_the_time_left(open_terminal: OpenTerminal, clock: list[float]) -> None:
    terminal = open_terminal()
    with Progress(4) as progress:
        clock[0] = 2.0
        progress.advance()
    assert terminal.lines() == [
        "[..............................] 0/4",
        "[#######.......................] 1/4  6 s left",
        "",
    ]


def test_an_estimate_is_shown_as_a_percentage_without_a_time(open_terminal: OpenTerminal, clock: list[float]) -> None:
    terminal = open_terminal()
    with Progress(1.0, "building") as progress:
        clock[0] = 2.0
        progress.update(0.4, "tactics")
    assert terminal.lines()[1] == "building [############..................]  40%  tactics"


def test_the_bar_is_drawn_at_most_ten_times_a_second(open_terminal: OpenTerminal, clock: list[float]) -> None:
    terminal = open_terminal()
    with Progress(1000) as progress:
        for step in range(1000):
            clock[0] = step / 1000
            progress.advance()
    assert 5 < len(terminal.lines()) <= 12


def test_a_cleared_bar_appears_again_with_the_next_step(open_terminal: OpenTerminal) -> None:
    terminal = open_terminal()
    with Progress(4) as progress:
        progress.clear()
        progress.advance()
    assert [bool(line) for line in terminal.lines()] == [True, False, True, False]


@pytest.mark.parametrize("columns", ["20", "41", "60"])
def test_the_line_fits_into_the_terminal(
    open_terminal: OpenTerminal, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    terminal = open_terminal()
    monkeypatch.setenv("COLUMNS", columns)
    with Progress(1.0, "building"):
        pass
    with Progress(1.0, "building") as progress:
        progress.clear()
        progress.update(0.5, "a long name of a phase that does not fit")
    assert max(map(len, terminal.lines())) < int(columns)


@pytest.mark.parametrize(("stream", "enabled"), [(io.StringIO(), True), (Terminal(), False), (None, True)])
def test_nothing_is_written_without_a_terminal_or_if_disabled(
    stream: io.StringIO | None, enabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", stream)
    with Progress(100, enabled=enabled) as progress:
        progress.advance()
        progress.clear()
    assert not progress.visible
    assert stream is None or stream.getvalue() == ""


def test_a_closed_terminal_does_not_stop_the_operation(open_terminal: OpenTerminal) -> None:
    terminal = open_terminal()
    with Progress(2) as progress:
        terminal.close()
        progress.clear()
        progress.advance()

"""The progress bar: drawn on a terminal only, and only where there is something to wait for."""

from __future__ import annotations

import io

import pytest
from hami import _progress
from hami._progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bar_shows_what_is_done_and_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([0.0, 0.0, 2.0])
    monkeypatch.setattr(_progress.time, "monotonic", lambda: next(seconds))
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    with Progress(4) as progress:
        progress.advance()
    assert terminal.getvalue() == (
        "\r[..............................] 0/4\r[#######.......................] 1/4  6 s left\r\x1b[K"
    )


@pytest.mark.parametrize(("total", "stream"), [(100, io.StringIO()), (3, Terminal())])
def test_bar_is_silent_in_a_pipe_and_for_few_steps(
    total: int, stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", stream)
    with Progress(total) as progress:
        progress.advance()
        progress.clear()
    assert stream.getvalue() == ""

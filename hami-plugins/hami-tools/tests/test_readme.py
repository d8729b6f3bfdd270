"""The code in the README runs as written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def test_the_examples_print_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    for code, printed in zip(blocks("python"), blocks("text"), strict=True):
        exec(compile(code, str(README), "exec"), {})
        assert capsys.readouterr().out == printed

"""The README's code runs as it is written there."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)


def test_the_example_prints_what_it_says(capsys):
    (code,) = blocks("python")
    exec(compile(code, str(README), "exec"), {})
    assert capsys.readouterr().out == "(1, 3, 224, 224)\n"

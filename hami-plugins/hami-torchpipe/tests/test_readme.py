"""The code in the README runs as written."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(("code", "output"), [*zip(blocks("python"), blocks("text"), strict=True)])
def test_each_example_prints_the_documented_output(
    code: str, output: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A class of the example looks up its types in the module that it names.
    module = types.ModuleType("readme")
    monkeypatch.setitem(sys.modules, "readme", module)
    exec(compile(code, str(README), "exec", dont_inherit=True), vars(module))
    assert capsys.readouterr().out == output

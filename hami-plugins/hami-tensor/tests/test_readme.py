"""The code in the README prints the output that follows it."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def test_the_examples_print_the_documented_output(capsys):
    text = README.read_text()
    code = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    expected = re.findall(r"^```text\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(code) == len(expected) + 1
    exec(compile("\n".join(code), str(README), "exec"), {})
    assert capsys.readouterr().out == "".join(expected)

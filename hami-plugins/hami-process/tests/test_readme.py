"""The example in the README runs as written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def test_the_example_prints_the_documented_output(tmp_path):
    code, output = re.findall(r"^```(?:python|text)\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
    program = tmp_path / "collatz.py"
    program.write_text(code)
    run = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, check=False)
    assert (run.stdout, run.stderr) == (output, "")

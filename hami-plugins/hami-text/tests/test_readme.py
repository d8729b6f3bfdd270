"""The README names what exists: its program runs on a small model, and its tables have the parameters."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import hami
import pytest
from small_models import MODULES

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()


def test_the_program_runs(write):
    (code,) = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    model = write(modules=MODULES, pooling={"pooling_mode_mean_tokens": True})
    names: dict[str, Any] = {}
    exec(code.replace("all-MiniLM-L6-v2", str(model.parent)), names)
    assert names["vector"].shape == names["many"][1]["result"].shape


def test_the_first_program_of_the_page(write, capsys):
    """The page of the documentation begins with it."""
    page = Path(__file__).resolve().parents[3] / "hami-core" / "docs" / "howto" / "text.md"
    if not page.exists():
        pytest.skip("the documentation is not in the source distribution of this package")
    code = re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)[0]
    assert len([line for line in code.splitlines() if line]) <= 10
    model = write(modules=MODULES, pooling={"pooling_mode_mean_tokens": True})
    exec(code.replace("all-MiniLM-L6-v2", str(model.parent)), {})
    assert re.fullmatch(r"-?\d\.\d\d Paris is.*\n-?\d\.\d\d The cat.*\n", capsys.readouterr().out)


@pytest.mark.parametrize("backend", ["Tokenize", "Pool", "TopLabels"])
def test_each_parameter_is_named(backend):
    (section,) = re.findall(rf"^## {backend}\n(.*?)(?=^## )", README, re.DOTALL | re.MULTILINE)
    found = hami.backends(load=True)[backend]
    for parameter in found.params:
        if parameter["name"] not in ("model", "activation"):
            assert f"`{parameter['name']}`" in section

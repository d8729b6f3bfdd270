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
    exec(code.replace("all-MiniLM-L6-v2/onnx/model.onnx", str(model)), names)
    assert names["vector"].shape == names["many"][1]["result"].shape


@pytest.mark.parametrize("backend", ["Tokenize", "Pool", "TopLabels"])
def test_each_parameter_is_named(backend):
    (section,) = re.findall(rf"^## {backend}\n(.*?)(?=^## )", README, re.DOTALL | re.MULTILINE)
    found = hami.backends(load=True)[backend]
    for parameter in found.params:
        if parameter["name"] not in ("model", "activation"):
            assert f"`{parameter['name']}`" in section

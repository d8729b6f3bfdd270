"""The code in the README runs as written."""

from __future__ import annotations

import re
from pathlib import Path

import hami
import pytest
from conftest import node

README = Path(__file__).resolve().parent.parent / "README.md"


def test_the_examples_run(save, monkeypatch, capsys):
    path = save(node("Relu"), name="detector.onnx")
    monkeypatch.chdir(path.parent)
    first, second, third = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
    names: dict[str, object] = {}
    exec(compile(first + second, str(README), "exec"), names)
    assert capsys.readouterr().out == "1 ()\n"
    hami.register("TestAcmeTensor")(names["AcmeTensor"])
    hami.pipe({"backend": "TestAcmeTensor", "model": "detector.onnx"}).close()
    with pytest.raises(hami.ConfigError, match="max_nodes = 0"):
        hami.pipe({"backend": "TestAcmeTensor", "model": "detector.onnx", "max_nodes": 0})
    assert third.startswith("from hami_model_check.isolation import load_in_child\n")

"""The code in the README runs as written."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import hami_accel

README = Path(__file__).resolve().parent.parent / "README.md"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE)


def test_the_examples_print_what_the_readme_shows(capsys, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    from models import Builder

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HAMI_ACCEL_CACHE", str(tmp_path))
    b = Builder()
    y = b.input("x", [1, 256, 256])
    for _ in range(8):
        y = b("MatMul", y, b.random(1, 256, 256))
    b.save(tmp_path / "net.onnx", y)
    names: dict[str, object] = {}
    (config,) = re.findall(r"^```toml\n# pipeline.toml\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    Path("pipeline.toml").write_text(config)
    blocks = BLOCK.findall(README.read_text())
    assert blocks
    for code, output in blocks:
        exec(compile(code, str(README), "exec"), names)
        assert capsys.readouterr().out == output


MODULES = [module.name for module in pkgutil.walk_packages(hami_accel.__path__, "hami_accel.")]


OPTIONAL = (".onnx_device.", ".vendors.", ".cuda_device.")  # need packages that are not always installed


@pytest.mark.parametrize("name", [name for name in MODULES if not any(part in name for part in OPTIONAL)])
def test_the_examples_of_docstrings_run(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0

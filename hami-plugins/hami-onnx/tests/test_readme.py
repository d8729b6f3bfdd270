"""The code in the README runs as written."""

from __future__ import annotations

import re
from pathlib import Path

from conftest import save
from onnx import TensorProto, helper

README = Path(__file__).resolve().parent.parent / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)


def test_the_example_runs_a_model(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (config, _), (code,) = blocks("toml"), blocks("python")
    Path("pipeline.toml").write_text(config.partition("# pipeline.toml\n")[2])
    mean = helper.make_node("ReduceMean", ["image"], ["mean"], axes=[1, 2, 3], keepdims=0)
    ports = {"image": (TensorProto.FLOAT, ["n", 3, "h", "w"])}, {"mean": (TensorProto.FLOAT, ["n"])}
    save(Path("detector.onnx"), [mean], *ports)
    exec(compile(code, str(README), "exec"), {})
    assert capsys.readouterr().out == "[0.0]\n"

"""The examples of the README run as written, and its table is complete."""

from __future__ import annotations

import re
from pathlib import Path

import hami
from conftest import save
from onnx import TensorProto, helper

from hami_openvino.differences import RULES

README = Path(__file__).resolve().parent.parent / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)


def test_the_example_runs_a_model(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (config, untrusted), (code,) = blocks("toml"), blocks("python")
    Path("pipeline.toml").write_text(config.partition("# pipeline.toml\n")[2])
    mean = helper.make_node("ReduceMean", ["image"], ["mean"], axes=[1, 2, 3], keepdims=0)
    ports = {"image": (TensorProto.FLOAT, ["n", 3, "h", "w"])}, {"mean": (TensorProto.FLOAT, ["n"])}
    save(Path("detector.onnx"), [mean], *ports)
    exec(compile(code, str(README), "exec"), {})
    assert capsys.readouterr().out == "[0.]\n"
    Path("untrusted.toml").write_text(untrusted)
    hami.pipe("untrusted.toml").close()


def test_the_table_lists_every_parameter():
    declared = [param["name"] for param in hami.backends()["OpenvinoTensor"].params]
    assert re.findall(r"^\| `(\w+)` \|", README.read_text(), re.MULTILINE) == declared


def test_the_tables_list_every_difference_from_onnx():
    text = README.read_text()
    for rule in RULES:
        rows = re.findall(rf"^\| (.*?) \| {re.escape(rule.what)} \|$", text, re.MULTILINE)
        named = [set(re.findall(r"\w+", operators)) for operators in rows]
        assert any(set(rule.operators) <= each for each in named), rule

"""hami show FILE and hami check list what OpenVINO computes differently, and whether requests are joined."""

from __future__ import annotations

import json

from conftest import save
from hami.__main__ import main
from onnx import TensorProto, helper

PORT = (TensorProto.FLOAT, ["n", 2])


def scaled(path, operator):
    nodes = [
        helper.make_node(operator, ["x"], ["s"], axes=[1], name="size"),
        helper.make_node("Div", ["x", "s"], ["d"]),
        helper.make_node("Relu", ["d"], ["y"], name="last"),
    ]
    return save(path, nodes, {"x": PORT}, {"y": PORT}, opset=13)


def shown(path, capsys):
    assert main(["show", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (facts,) = [facts for name, facts in found.items() if name.startswith("hami-openvino ")]
    return facts


def test_show_lists_what_is_refused_and_what_is_listed(tmp_path, capsys):
    facts = shown(scaled(tmp_path / "m.onnx", "ReduceL1"), capsys)
    (refused,) = facts["refused"]
    assert refused.startswith('ReduceL1 (node "size", opset 13): reduces over all axes')
    assert facts["differences"] == ['Relu (node "last", opset 13): NaN becomes a number']
    assert facts["precision"].startswith("float32")
    assert facts["rows"] == "mixes", "as OpenVINO computes it; the specification keeps rows apart"


def test_show_says_that_rows_are_independent(tmp_path, capsys):
    facts = shown(scaled(tmp_path / "m.onnx", "ReduceL2"), capsys)
    assert "refused" not in facts
    assert facts["rows"] == "independent"
    assert facts["axes"] == "x: axis 0, y: axis 0"


def test_check_lists_the_findings_of_each_node(tmp_path, capsys):
    model = scaled(tmp_path / "m.onnx", "ReduceL1")
    config = tmp_path / "p.toml"
    config.write_text(f'[node]\nbackend = "S[Identity,OpenvinoTensor]"\nmodel = "{model}"\n')
    main(["check", str(config)])
    out = capsys.readouterr().out
    assert f'"{model.name}": is refused: ReduceL1 (node "size", opset 13): ' in out
    assert f'"{model.name}": OpenVINO differs from ONNX: Relu (node "last", opset 13): ' in out
    assert f'"{model.name}": requests run one by one: rows influence each other: ReduceL1' in out
    config.write_text(config.read_text() + 'accept_differences = ["ReduceL1"]\n')
    main(["check", str(config)])
    assert "is refused" not in capsys.readouterr().out

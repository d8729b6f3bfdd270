"""hami show FILE and hami check list what OpenVINO computes differently, and whether requests are joined."""

from __future__ import annotations

import json

import hami.config
import numpy as np
import pytest
from conftest import save
from hami.__main__ import main
from onnx import TensorProto, helper

from hami_openvino._ir import ir_signature

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


def test_show_and_the_signature_have_the_inputs_and_outputs_of_an_ir(models, capsys):
    path = models.double_ir()
    facts = shown(path, capsys)
    assert facts["inputs"] == ["x  float32 [?, ?]"]
    assert facts["outputs"] == ["y  float32 [?, ?]"]
    assert facts["ir version"] == "11"
    with hami.pipe({"backend": "OpenvinoTensor", "model": str(path)}) as pipe:
        found = hami.config.signature(pipe.describe())
        assert found == {
            "inputs": [{"name": "x", "dtype": "float32", "shape": [-1, -1]}],
            "outputs": [{"name": "y", "dtype": "float32", "shape": [-1, -1]}],
        }
        assert pipe({"x": np.ones((1, 2), np.float32)})["result"].tolist() == [[2, 2]]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("<net", "is damaged or is not an OpenVINO IR: "),
        ("<a/>", 'is not an OpenVINO IR: it has no element "net"'),
        (
            '<net><layers><layer type="Parameter"><output><port><dim>x</dim></port></output></layer></layers></net>',
            "damaged",
        ),
    ],
)
def test_a_file_that_is_not_an_ir_is_named(tmp_path, capsys, text, error):
    (tmp_path / "m.xml").write_text(text)
    assert main(["show", str(tmp_path / "m.xml")]) == 1
    assert error in capsys.readouterr().err


def test_the_ports_of_the_body_of_a_loop_are_not_those_of_the_model(tmp_path):
    port = '<port id="0" precision="FP32" names="{}"><dim>1</dim></port>'
    layer = '<layer id="{0}" type="Parameter"><output>' + port.format("{1}") + "</output>{2}</layer>"
    body = "<body><layers>" + layer.format(0, "inner", "") + "</layers></body>"
    result = '<layer id="3" type="Result" output_names="y"><input>' + port.format("") + "</input></layer>"
    (tmp_path / "m.xml").write_text(f"<net><layers>{layer.format(1, 'x', body)}{result}</layers></net>")
    found = ir_signature(tmp_path / "m.xml")
    assert found is not None
    assert [[each["name"] for each in found[kind]] for kind in ("inputs", "outputs")] == [["x"], ["y"]]

"""hami show FILE, hami check and explain() say whether requests are joined, and why."""

from __future__ import annotations

import json
from types import SimpleNamespace

import hami
import numpy as np
from conftest import save
from hami.__main__ import main
from onnx import TensorProto, helper

from hami_onnx._plugin_providers import PluginProvider

PORT = (TensorProto.FLOAT, ["n", 2])


def mixing(folder):
    node = helper.make_node("Softmax", ["x"], ["y"], axis=0, name="over_rows")
    return save(folder / "mixing.onnx", [node], {"x": PORT}, {"y": PORT})


def test_show_describes_a_model_whose_requests_are_joined(models, capsys):
    assert main(["show", str(models.double(width=2)), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (facts,) = [facts for name, facts in found.items() if name.startswith("hami-onnx ")]
    assert facts["inputs"] == ["x  float32 [?, 2]"]
    assert facts["runs in"] == "the native library"
    assert facts["requests"] == "joined"
    assert facts["known by"] == "proof"
    assert facts["axes"] == "x: axis 0, y: axis 0"
    assert facts["largest difference"].startswith("0.0e+00 of the largest value")


def test_show_says_that_a_model_with_strings_runs_in_python(models, capsys):
    assert main(["show", str(models.words()), "--json"]) == 0
    (facts,) = [facts for name, facts in json.loads(capsys.readouterr().out).items() if name.startswith("hami-onnx ")]
    assert facts["runs in"].startswith("Python: a value of the model is not a tensor of numbers")


def test_show_names_the_operator_that_mixes_rows(tmp_path, capsys):
    assert main(["show", str(mixing(tmp_path))]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert ["requests", "one by one"] in lines
    assert ["rows", "mixes"] in lines
    assert any(line[0] == "reason" and 'Softmax (opset 17, node "over_rows")' in line[1] for line in lines)


def test_check_prints_the_finding_of_each_node(tmp_path, capsys):
    config = tmp_path / "p.toml"
    config.write_text(f'[node]\nbackend = "S[Identity,OnnxTensor]"\nmodel = "{mixing(tmp_path)}"\n')
    assert main(["check", str(config)]) == 0
    assert "requests run one by one: rows influence each other: Softmax" in capsys.readouterr().out


def test_check_says_that_a_test_decides_where_the_proof_knows_too_little(tmp_path, capsys):
    node = helper.make_node("Add", ["x", "b"], ["y"])
    path = save(tmp_path / "m.onnx", [node], {"x": PORT}, {"y": PORT}, {"b": np.zeros((3, 1), np.float32)})
    assert main(["check", str(path)]) == 0
    out = capsys.readouterr().out
    assert '"m.onnx": a test decides when the model is opened, because it is not known whether rows influence' in out


def test_explain_says_why_requests_run_one_by_one(pipe, tmp_path):
    running = pipe(model=str(mixing(tmp_path)), instance_num=2)
    running([{"data": np.zeros((1, 2), np.float32)} for _ in range(3)])
    (sentence,) = [each for each in running.remarks() if "OnnxTensor runs requests one by one" in each]
    assert sentence.startswith("default: OnnxTensor runs requests one by one: rows influence each other: Softmax")


def test_show_says_which_operators_each_provider_runs(models, capsys, monkeypatch):
    """The provider is not a real one: what ONNX Runtime reports about it is given."""
    broken, good = (PluginProvider(name, name, "1.0", f"/none/{name}.so") for name in ("broken", "good"))
    assigned = {"good_ep": ["Add", "Add"], "CPUExecutionProvider": ["NonZero"]}

    def opened(path, *, provider, backend):
        if provider == "broken":
            raise hami.PluginError("it cannot be registered\nin a note")
        return SimpleNamespace(assigned=assigned)

    monkeypatch.setattr("hami_onnx.show.open_native", opened)
    for providers, expected in (
        (
            (broken, good),
            {"on broken": "it cannot be registered", "on good": "good_ep: 2 Add; CPUExecutionProvider: 1 NonZero"},
        ),
        ((), {"on the CPU": "all operators: no execution provider that is a package of its own is installed"}),
    ):
        monkeypatch.setattr("hami_onnx.show.installed_providers", lambda found=providers: found)
        assert main(["show", str(models.double()), "--providers", "--json"]) == 0
        (facts,) = [facts for name, facts in json.loads(capsys.readouterr().out).items() if "hami-onnx" in name]
        assert {name: text for name, text in facts.items() if name.startswith("on ")} == expected
        assert facts["requests"] == "joined"

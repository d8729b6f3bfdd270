"""hami import-mlserver: a repository of MLServer becomes models.toml; a model that only Python runs has its reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hami
import pytest

from hami_serve.commands import import_mlserver_command
from hami_serve.mlserver_import import import_mlserver
from hami_serve.source import read_components

TENSOR = {"name": "x", "datatype": "FP32", "shape": [-1, 2]}


def write(folder: Path, file: str = "model.onnx", **settings: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model-settings.json").write_text(json.dumps(settings))
    if file:
        (folder / file).write_bytes(b"")
    return folder


def test_a_repository_becomes_a_file_that_can_be_served(tmp_path, capsys):
    text = {"name": "t", "datatype": "BYTES", "shape": [1], "parameters": {"content_type": "str"}}
    uri = {"uri": "./model.onnx", "version": "v3"}
    write(tmp_path / "a", name="iris", parameters=uri, inputs=[TENSOR, text], outputs=[TENSOR], max_batch_size=8)
    write(tmp_path / "folder", parameters={"uri": "."}, max_batch_time=0.1)
    output = tmp_path / "models.toml"
    assert import_mlserver_command(str(tmp_path), str(output)) == 0
    assert capsys.readouterr().err == 'folder: "max_batch_time" is not mapped; the batch size follows measured times\n'
    found = read_components(output)
    assert [*found] == ["iris", "folder"]
    (version,) = found["iris"].versions.values()
    assert [*found["iris"].versions] == ["v3"]
    assert [(each.name, each.datatype, each.shape, each.is_text) for each in version.inputs] == [
        ("x", "FP32", (-1, 2), False),
        ("t", "BYTES", (1,), True),
    ]
    components = import_mlserver(tmp_path).components
    model = str(tmp_path / "a" / "model.onnx")
    assert components["iris"]["source"] == {"backend": "OnnxTensor", "model": model, "max": 8}


@pytest.mark.parametrize(
    ("file", "settings", "reason"),
    [
        (
            "model.joblib",
            {"implementation": "mlserver_sklearn.SKLearnModel", "parameters": {"uri": "model.joblib"}},
            "mlserver_sklearn.SKLearnModel runs in Python: write a backend for it, or export the model to ONNX",
        ),
        ("", {"implementation": "models.Mine"}, 'it has no "uri" of a file .onnx'),
        ("", {"parameters": {"uri": "s3://bucket/model.onnx"}}, "is not a file of this machine; download it first"),
        ("", {"parameters": {"uri": "absent.onnx"}}, "does not exist"),
        ("model.onnx", {"name": "a/b", "parameters": {"uri": "model.onnx"}}, "rename it"),
        ("model.onnx", {"name": 1}, '"name" is a text, got 1'),
        ("model.onnx", {"parameters": []}, 'it has no "uri"'),
        ("model.onnx", {"parameters": [1]}, '"parameters" is an object'),
        ("model.onnx", {"parameters": {"uri": "model.onnx"}, "inputs": [{"name": "x"}]}, "a datatype and a shape"),
        ("model.onnx", {"parameters": {"uri": "model.onnx"}, "inputs": [{**TENSOR, "datatype": "F"}]}, "datatype 'F'"),
        ("model.onnx", {"parameters": {"uri": "model.onnx"}, "inputs": [{**TENSOR, "datatype": []}]}, "a datatype and"),
        ("model.onnx", {"parameters": {"uri": "model.onnx"}, "inputs": [{**TENSOR, "shape": [None]}]}, "and a shape"),
        (
            "model.onnx",
            {"parameters": {"uri": "model.onnx"}, "inputs": [{**TENSOR, "name": "\ud800"}]},
            "valid Unicode",
        ),
        ("", {"parameters": {"uri": "x" * 5000}}, "File name too long"),
    ],
)
def test_a_model_that_cannot_be_imported_has_its_reason(tmp_path, file, settings, reason):
    write(tmp_path / "a", file, **settings)
    found = import_mlserver(tmp_path)
    assert found.components == {}
    (error,) = found.errors.values()
    assert reason in str(error)
    assert reason in found.toml()


def test_control_characters_of_a_model_are_escaped_in_the_file(tmp_path):
    write(tmp_path / "a", implementation="a\x1b[31m\0", parameters={"uri": "x"})
    inputs = [{**TENSOR, "name": "x\x7f\u2028"}]
    write(tmp_path / "b", parameters={"uri": "model.onnx", "version": "1"}, inputs=inputs)
    text = import_mlserver(tmp_path).toml()
    assert all(char.isprintable() or char == "\n" for char in text)
    (tmp_path / "models.toml").write_text(text)
    assert read_components(tmp_path / "models.toml")["b"].versions["1"].inputs[0].name == "x\x7f\u2028"


def test_a_file_that_is_not_json_does_not_stop_the_others(tmp_path):
    write(tmp_path / "good", parameters={"uri": "model.onnx"})
    (write(tmp_path / "bad", "") / "model-settings.json").write_text("[" * 100_000)
    found = import_mlserver(tmp_path)
    assert ([*found.components], [*found.errors]) == (["good"], ["bad"])


def test_serving_a_repository_of_mlserver_names_the_command(tmp_path):
    write(tmp_path / "iris", parameters={"uri": "model.onnx"})
    with pytest.raises(hami.ConfigError, match=r"hami import-mlserver .* --output models\.toml"):
        read_components(tmp_path)
    with pytest.raises(hami.ConfigError, match="is not a model repository of MLServer"):
        import_mlserver(tmp_path / "absent")

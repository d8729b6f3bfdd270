"""A folder of model files is a model repository, and a model file is one model."""

from __future__ import annotations

from pathlib import Path

import hami
import pytest

from hami_serve.serving import components_of, with_settings
from hami_serve.source import read_components

onnx = pytest.importorskip("onnx", reason="writes ONNX models")
pytest.importorskip("hami_onnx", reason="opens them")


def write_model(path: Path) -> Path:
    """Write a model that doubles rows of three numbers."""
    helper, float32 = onnx.helper, onnx.TensorProto.FLOAT
    ports = [helper.make_tensor_value_info(name, float32, ["batch", 3]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "g", ports[:1], ports[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_a_folder_of_model_files_is_a_repository(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_model(tmp_path / f"{name}.onnx")
    (tmp_path / "README.md").touch()
    assert {name: spec.versions["1"].source for name, spec in read_components(tmp_path).items()} == {
        "one": str(tmp_path / "one.onnx"),
        "two": str(tmp_path / "two.onnx"),
    }


def test_model_files_beside_toml_files_belong_to_those(tmp_path: Path) -> None:
    write_model(tmp_path / "net.onnx")
    (tmp_path / "served.toml").write_text('backend = "OnnxTensor"\nmodel = "net.onnx"\n')
    assert list(read_components(tmp_path)) == ["served"]


def test_two_model_files_of_one_name_are_an_error(tmp_path: Path) -> None:
    write_model(tmp_path / "net.onnx")
    (tmp_path / "net.xml").touch()
    with pytest.raises(hami.ConfigError, match=r'"net\.onnx" and "net\.xml" in .* have one name; rename one of them'):
        read_components(tmp_path)


def test_a_model_file_is_a_component_with_its_name_and_changes_with_the_file(tmp_path: Path) -> None:
    path = write_model(tmp_path / "net.onnx")
    before = components_of(path)["net"].versions["1"]
    assert before.source == str(path)
    write_model(path)
    assert components_of(path)["net"].versions["1"].stamp != before.stamp


def test_settings_of_the_command_are_those_of_the_pipeline(tmp_path: Path) -> None:
    path = write_model(tmp_path / "net.onnx")
    (found,) = components_of(with_settings(str(path), ["max=3"]))["net"].versions.values()
    with hami.pipe(found.source) as pipe:
        assert pipe.describe()["nodes"]["default"]["batching"]["max"] == 3
    (found,) = components_of(with_settings("OnnxTensor", ["model=none.onnx"]))["OnnxTensor"].versions.values()
    with pytest.raises(hami.ConfigError, match=r'file "none\.onnx" does not exist'):
        hami.pipe(found.source)
    with pytest.raises(hami.ConfigError, match="--set takes KEY=VALUE"):
        with_settings(str(path), ["max"])


def test_an_index_names_model_files_relative_to_its_folder(tmp_path: Path) -> None:
    write_model(tmp_path / "net.onnx")
    (tmp_path / "models.toml").write_text('[detector]\nsource = "net.onnx"\n')
    assert read_components(tmp_path)["detector"].versions["1"].source == str(tmp_path / "net.onnx")

"""The files of a model: replaced weights are read again, and missing weights are named."""

from __future__ import annotations

import os
from pathlib import Path

import hami
import numpy as np
import onnx
import openvino
import pytest
from conftest import values
from onnx import TensorProto, helper, numpy_helper

ROW = {"data": np.ones((1, 2), np.float32)}
PORT = (TensorProto.FLOAT, ["n", 2])


def times(folder: Path, factor: float) -> Path:
    """y = x * factor. The factor is in a file beside the model; the model file is the same for every factor."""
    folder.mkdir()
    weights = numpy_helper.from_array(np.full((1, 2), factor, np.float32), "w")
    return save(folder, [helper.make_node("Mul", ["x", "w"], ["y"])], [weights])


def save(folder: Path, nodes, weights=(), inputs=None) -> Path:
    ports = [helper.make_tensor_value_info(name, *port) for name, port in (inputs or {"x": PORT}).items()]
    graph = helper.make_graph(nodes, "test", ports, [helper.make_tensor_value_info("y", *PORT)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = folder / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="model.w", size_threshold=0, convert_attribute=True)
    return path


def result(pipe, path: Path):
    return values(pipe(model=str(path))(dict(ROW)))


def replace_weights(path: Path, other: Path) -> None:
    assert path.read_bytes() == other.read_bytes()
    os.replace(other.with_name("model.w"), path.with_name("model.w"))


def test_replaced_weights_of_an_onnx_model_are_read(pipe, tmp_path):
    path = times(tmp_path / "a", 3)
    assert result(pipe, path) == [[3, 3]]
    replace_weights(path, times(tmp_path / "b", 5))
    assert result(pipe, path) == [[5, 5]]


def branches(folder: Path, factor: float) -> Path:
    """y = x * factor if `on`, else x. The factor is a constant inside a branch."""
    folder.mkdir()
    value = numpy_helper.from_array(np.full((1, 2), factor, np.float32), "value")
    out = [helper.make_tensor_value_info("z", *PORT)]
    scaled = [helper.make_node("Constant", [], ["c"], value=value), helper.make_node("Mul", ["x", "c"], ["z"])]
    then = helper.make_graph(scaled, "then", [], out)
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["z"])], "else", [], out)
    node = helper.make_node("If", ["on"], ["y"], then_branch=then, else_branch=other)
    return save(folder, [node], inputs={"x": PORT, "on": (TensorProto.BOOL, [])})


def test_replaced_weights_of_a_nested_graph_are_read(pipe, tmp_path):
    data = {"data": [np.ones((1, 2), np.float32), np.array(True)]}
    path = branches(tmp_path / "a", 3)
    assert values(pipe(model=str(path))(dict(data))) == [[3, 3]]
    replace_weights(path, branches(tmp_path / "b", 5))
    assert values(pipe(model=str(path))(dict(data))) == [[5, 5]]


@pytest.mark.parametrize("links", [["model.onnx"], ["model.onnx", "model.w"]])
def test_a_link_to_an_onnx_model_finds_its_weights(pipe, tmp_path, links):
    path = times(tmp_path / "real", 3)
    (tmp_path / "links").mkdir()
    for name in links:
        (tmp_path / "links" / name).symlink_to(path.with_name(name))
    assert result(pipe, tmp_path / "links" / "model.onnx") == [[3, 3]]


def config_error(pipe, path: Path) -> str:
    with pytest.raises(hami.ConfigError) as error:
        pipe(model=str(path))
    return str(error.value)


def test_missing_weights_of_an_onnx_model_are_named(pipe, tmp_path):
    path = times(tmp_path / "a", 3)
    path.with_name("model.w").unlink()
    assert f'; weights file "{path.with_name("model.w")}" does not exist' in config_error(pipe, path)


def test_missing_weights_of_an_ir_are_named(pipe, models, tmp_path):
    path = tmp_path / "layers.xml"
    openvino.save_model(openvino.convert_model(models.layers()[0]), path)
    path.with_suffix(".bin").unlink()
    assert f'; weights file "{path.with_suffix(".bin")}" does not exist' in config_error(pipe, path)


def test_a_truncated_model_is_rejected(pipe, tmp_path):
    whole = times(tmp_path / "a", 3).read_bytes()
    path = tmp_path / "a" / "cut.onnx"
    for length in range(1, len(whole), 7):
        path.write_bytes(whole[:length])
        assert f'OpenvinoTensor: "{path}" ({length} bytes) ' in config_error(pipe, path)


def test_the_cache_of_hugging_face_opens(pipe, tmp_path):
    """All files are links, to files that have a hash as name: nothing is beside the target of a link."""
    path = times(tmp_path / "real", 3)
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "revision"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for name, digest in (("model.onnx", "0123"), ("model.w", "4567")):
        path.with_name(name).rename(blobs / digest)
        (snapshot / name).symlink_to(f"../../blobs/{digest}")
    assert result(pipe, snapshot / "model.onnx") == [[3, 3]]
    (blobs / "4567").rename(blobs / "moved")
    assert f'; weights file "{blobs / "model.w"}" does not exist' in config_error(pipe, snapshot / "model.onnx")

"""The hash of a model covers every file with its weights."""

from __future__ import annotations

import shutil

import hami
import models
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from hami_trt._onnx_files import external_files, hash_model


def test_a_model_in_one_file_has_no_external_files(tmp_path):
    model = models.convolution(tmp_path / "model.onnx")
    assert external_files(model, "Owner") == []
    assert hash_model(model, "Owner") == hash_model(shutil.copy(model, tmp_path / "other.onnx"), "Owner")
    assert hash_model(model, "Owner") != hash_model(models.convolution(tmp_path / "model.onnx", seed=1), "Owner")


def test_weights_beside_the_model_change_its_hash(tmp_path):
    model = models.external(tmp_path / "model.onnx")
    assert external_files(model, "Owner") == ["model.weights"]
    before, content = hash_model(model, "Owner"), model.read_bytes()
    weights = tmp_path / "model.weights"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    assert model.read_bytes() == content
    assert hash_model(model, "Owner") != before


def external_tensor(name: str, file: str) -> TensorProto:
    tensor = numpy_helper.from_array(np.zeros(1, np.float32), name)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=file)
    return tensor


def test_weights_are_found_in_all_parts_of_a_model(tmp_path):
    branch = helper.make_graph(
        [helper.make_node("Constant", [], ["y"], value=external_tensor("c", "attribute.bin"))],
        "branch",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
        [external_tensor("d", "branch.bin")],
    )
    sparse = helper.make_sparse_tensor(
        external_tensor("values", "values.bin"), external_tensor("indices", "indices.bin"), [1]
    )
    function = helper.make_function(
        "acme",
        "Made",
        [],
        ["y"],
        [helper.make_node("Constant", [], ["y"], value=external_tensor("e", "function.bin"))],
        [],
    )
    graph = helper.make_graph(
        [helper.make_node("If", ["x"], ["z"], then_branch=branch, else_branch=branch)],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [1])],
        [external_tensor("a", "graph.bin"), external_tensor("b", "graph.bin")],
        sparse_initializer=[sparse],
    )
    path = tmp_path / "model.onnx"
    path.write_bytes(helper.make_model(graph, functions=[function]).SerializeToString())
    assert external_files(path, "Owner") == [
        "attribute.bin", "branch.bin", "function.bin", "graph.bin", "indices.bin", "values.bin",
    ]  # fmt: skip


def error_of(path) -> str:
    with pytest.raises(hami.ConfigError) as caught:
        hash_model(path, "Owner")
    return str(caught.value)


def test_missing_weights_are_named(tmp_path):
    model = models.external(tmp_path / "model.onnx")
    (tmp_path / "model.weights").unlink()
    assert error_of(model) == (
        f'Owner: weights file "model.weights" of "{model}" does not exist; expected it beside the model'
    )


def test_a_file_that_is_not_a_model_is_an_error(tmp_path):
    path = tmp_path / "model.onnx"
    for content in (b"hello", b"\xff" * 40, b"\x3a\x7f", b"\x09\x00"):
        path.write_bytes(content)
        assert error_of(path) == (f'Owner: "{path}" ({len(content)} bytes) is truncated or is not an ONNX model')
    path.write_bytes(b"")
    assert error_of(path) == f'Owner: "{path}" is empty; expected an ONNX model'


def test_a_truncated_model_is_an_error(tmp_path):
    path = models.convolution(tmp_path / "model.onnx")
    whole = path.read_bytes()
    assert onnx.load(path).graph.node
    path.write_bytes(whole[: len(whole) // 2])
    assert error_of(path).endswith("is truncated or is not an ONNX model")

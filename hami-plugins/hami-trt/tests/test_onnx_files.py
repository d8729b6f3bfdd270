"""The hash of a model covers every file with its weights."""

from __future__ import annotations

import shutil

import hami
import models
import onnx
import pytest

from hami_trt._onnx_files import hash_model


def test_a_model_in_one_file_has_no_external_files(tmp_path):
    model = models.convolution(tmp_path / "model.onnx")
    assert hash_model(model, "Owner") == hash_model(shutil.copy(model, tmp_path / "other.onnx"), "Owner")
    assert hash_model(model, "Owner") != hash_model(models.convolution(tmp_path / "model.onnx", seed=1), "Owner")


def test_weights_beside_the_model_change_its_hash(tmp_path):
    model = models.external(tmp_path / "model.onnx")
    before, content = hash_model(model, "Owner"), model.read_bytes()
    weights = tmp_path / "model.weights"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    assert model.read_bytes() == content
    assert hash_model(model, "Owner") != before


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
    for content in (b"hello", b"\xff" * 40, b"\x3a\x7f", b"\x09\x00", b""):
        path.write_bytes(content)
        assert error_of(path).startswith(
            f'Owner: "{path}" ({len(content)} bytes) is truncated or is not an ONNX model: '
        )


def test_a_truncated_model_is_an_error(tmp_path):
    path = models.convolution(tmp_path / "model.onnx")
    whole = path.read_bytes()
    assert onnx.load(path).graph.node
    path.write_bytes(whole[: len(whole) // 2])
    assert "is truncated or is not an ONNX model: " in error_of(path)


def test_the_limits_of_a_graph_are_checked(tmp_path):
    path = models.convolution(tmp_path / "model.onnx")
    nodes = len(onnx.load(path).graph.node)
    assert hash_model(path, "Owner", {"max_nodes": nodes})
    with pytest.raises(hami.ConfigError, match=f"has more than max_nodes = {nodes - 1} nodes"):
        hash_model(path, "Owner", {"max_nodes": nodes - 1})

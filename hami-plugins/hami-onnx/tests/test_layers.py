"""The layers of a model: modules as boxes that no edge leads back to, and tensors between them."""

from __future__ import annotations

import hami
import numpy as np
import pytest
from conftest import save
from onnx import TensorProto, helper

from hami_onnx.layers import model_layers

PORT = (TensorProto.FLOAT, ["n", 3])


def write(path, *nodes):
    made = [helper.make_node(kind, inputs.split(), outputs.split(), name=name) for name, kind, inputs, outputs in nodes]
    return str(save(path, made, {"x": PORT}, {"y": PORT}, {"w": np.float32(1)}))


def test_nodes_of_a_module_that_follow_each_other_are_one_box(tmp_path):
    model = write(
        tmp_path / "m.onnx",
        ("/net/stem/conv/Mul", "Mul", "x w", "a"),
        ("/net/stem/act/Relu", "Relu", "a", "b"),
        ("/net/head/Mul", "Mul", "b w", "c"),
        ("/net/stem/again/Add", "Add", "c a", "d"),
        ("", "Identity", "d", "e"),
        ("last", "Relu", "e", "y"),
    )
    assert model_layers(model) == {
        "nodes": {
            "input x": [],
            "net/stem": ["Mul", "Relu"],
            "net/head": ["Mul"],
            "net/stem (2)": ["Add"],
            "last": ["Relu"],
            "output y": [],
        },
        "edges": [
            ["input x", "net/stem", "? x 3"],
            ["net/stem", "net/head", ""],
            ["net/head", "net/stem (2)", ""],
            ["net/stem", "net/stem (2)", ""],
            ["net/stem (2)", "last", ""],
            ["last", "output y", "? x 3"],
        ],
    }


def test_nodes_without_names_are_boxes_of_their_own(tmp_path):
    found = model_layers(write(tmp_path / "m.onnx", ("", "Relu", "x", "a"), ("", "Relu", "a", "y")))
    assert list(found["nodes"]) == ["input x", "Relu", "Relu (2)", "output y"]


def test_a_file_that_is_no_model_says_so(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"\xff" * 50)
    with pytest.raises(hami.ConfigError, match=r"m\.onnx cannot be read as an ONNX model"):
        model_layers(str(tmp_path / "m.onnx"))

"""find_fixed_ones: which lengths of 1 a file declares for its rows."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from hami_model_check.free_axis import FIXED_ONE, FREE, find_fixed_ones
from hami_model_check.rows import prove_rows


def write(folder, inputs, output):
    nodes = [helper.make_node("Add", list(inputs), ["y"])]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    graph = helper.make_graph(nodes, "g", ports, [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)])
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def freed_shapes(path, offsets):
    data = bytearray(path.read_bytes())
    for at in offsets:
        assert data[at : at + 2] == FIXED_ONE
        data[at : at + 2] = FREE
    model = onnx.load_model_from_string(bytes(data))
    ports = (*model.graph.input, *model.graph.output)
    return {
        port.name: [each.dim_value if each.HasField("dim_value") else None for each in port.type.tensor_type.shape.dim]
        for port in ports
    }


def test_only_the_rows_of_inputs_and_all_ones_of_outputs_are_freed(tmp_path):
    path = write(tmp_path, {"a": [1, 1, 3], "b": [1, 1, 3]}, [1, 1, 3])
    offsets = find_fixed_ones(path, {"a": 0, "b": None})
    assert freed_shapes(path, offsets) == {"a": [None, 1, 3], "b": [1, 1, 3], "y": [None, None, 3]}
    proof = prove_rows(path, backend="Test", batch_axes={"a": 0, "b": None}, freed=offsets)
    assert (proof.verdict, dict(proof.input_axes)) == ("independent", {"a": 0, "b": None})


@pytest.mark.parametrize("shape", [[2, 3], ["n", 3], []])
def test_an_input_that_does_not_have_one_row_frees_nothing(tmp_path, shape):
    path = write(tmp_path, {"a": shape, "b": [1, 3]}, [1, 3])
    assert find_fixed_ones(path, {"a": 0, "b": 0}) == []


def test_an_input_that_the_file_lacks_frees_nothing(tmp_path):
    assert find_fixed_ones(write(tmp_path, {"a": [1, 3], "b": [1, 3]}, [1, 3]), {"c": 0}) == []

"""read_graph returns what the package onnx reads from the same file."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from hami_model_check.graph import Body, Constant, Port, read_graph


def save(path, nodes, constants=(), functions=(), opsets=(("", 17),), inputs=None):
    ports = inputs or [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, None])]
    graph = helper.make_graph(nodes, "g", ports, [helper.make_tensor_value_info("y", 1, None)], list(constants))
    imports = [helper.make_opsetid(*each) for each in opsets]
    model = helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=9)
    onnx.save(model, path)
    return path


def test_nodes_have_their_names_and_attributes(tmp_path):
    node = helper.make_node(
        "Op", ["x", "", "z"], ["y"], name="the node", domain="acme", whole=-3, text="grün", list=[1, -2**63, 2**40],
        words=["a", "b"], number=1.5,
    )  # fmt: skip
    graph = read_graph(save(tmp_path / "m.onnx", [node], opsets=[("", 17), ("acme", 5)]))
    (found,) = graph.nodes()
    assert (found.op_type, found.domain, found.name, found.opset) == ("Op", "acme", "the node", 5)
    assert (found.inputs, found.outputs) == (("x", "", "z"), ("y",))
    assert [found.input(index) for index in range(4)] == ["x", "", "z", ""]
    assert found.integer("whole") == -3
    assert found.integer("absent", 7) == 7
    assert found.text("text") == "grün"
    assert found.integers("list") == (1, -(2**63), 2**40)
    assert found.attributes["words"] == ("a", "b")
    assert found.attributes["number"] is None
    assert (graph.opsets, graph.ir_version) == ({"": 17, "acme": 5}, 9)


def test_ports_have_types_and_shapes(tmp_path):
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, None, -1]),
        helper.make_tensor_value_info("s", TensorProto.INT64, []),
        helper.make_tensor_value_info("r", TensorProto.BOOL, None),
    ]
    body = read_graph(save(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])], inputs=inputs)).main
    assert body.inputs == (Port("x", 1, (None, 3, None, None)), Port("s", 7, ()), Port("r", 9, None))
    assert body.outputs == (Port("y", 1, None),)
    assert set(body.ports) == {"x", "s", "r", "y"}


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_integer_constants_have_their_values(tmp_path, dtype, raw):
    numbers = np.array([[0, 1, 2**62]], dtype)
    if dtype == np.int64:
        numbers = -numbers
    made = numpy_helper.from_array(numbers, "c")
    if not raw:
        made = helper.make_tensor("c", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), [1, 3], numbers.reshape(-1))
    weights = numpy_helper.from_array(np.ones((4, 5), np.float32), "w")
    constant = helper.make_node("Constant", [], ["k"], value=made)
    body = read_graph(save(tmp_path / "m.onnx", [constant], [made, weights])).main
    for found in (body.constants["c"], body.own_nodes[0].attributes["value"]):
        assert isinstance(found, Constant)
        assert found.shape == (1, 3)
        assert found.values is not None
        assert found.values.tolist() == numbers.reshape(-1).tolist()
    assert (body.constants["w"].shape, body.constants["w"].values) == ((4, 5), None)


def test_subgraphs_and_local_functions_are_walked(tmp_path):
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    branches = [helper.make_graph([helper.make_node(name, ["x"], ["y"])], "b", [], [out]) for name in ("Relu", "Exp")]
    node = helper.make_node("If", ["on"], ["y"], then_branch=branches[0], else_branch=branches[1])
    function = helper.make_function(
        "acme", "F", ["a"], ["b"], [helper.make_node("Tanh", ["a"], ["b"])], [helper.make_opsetid("", 11)]
    )
    graph = read_graph(save(tmp_path / "m.onnx", [node], functions=[function]))
    assert sorted((each.op_type, each.opset) for each in graph.nodes()) == [
        ("Exp", 17), ("If", 17), ("Relu", 17), ("Tanh", 11),
    ]  # fmt: skip
    assert len(list(graph.bodies())) == 4
    assert isinstance(graph.main.own_nodes[0].attributes["then_branch"], Body)


def test_a_replaced_file_is_read_again(tmp_path):
    path = save(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])])
    first = read_graph(path)
    assert read_graph(path) is first
    save(tmp_path / "other.onnx", [helper.make_node("Tanh", ["x"], ["y"])]).replace(path)
    assert [node.op_type for node in read_graph(path).nodes()] == ["Tanh"]


def test_a_damaged_file_is_a_value_error(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x3a\xff")
    with pytest.raises(ValueError, match=r"does not end|longer than"):
        read_graph(path)

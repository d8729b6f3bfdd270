"""prove_rows finds the batch axis of inputs and outputs, and follows subgraphs, loops and local functions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import hami
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from row_models import ROWS, floats, ints, model, op, prove

from hami_model_check.rows import prove_rows

GENERATOR = Path(__file__).resolve().parents[3] / "ci" / "row_independence.py"
LSTM = {"w": floats(1, 8, 4), "r": floats(1, 8, 2)}


def body(*nodes: onnx.NodeProto, inputs: str = "", outputs: str = "y") -> onnx.GraphProto:
    kinds = {"i": TensorProto.INT64, "go": TensorProto.BOOL, "goes": TensorProto.BOOL}
    given, results = (
        [helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), None) for name in names.split()]
        for names in (inputs, outputs)
    )
    return helper.make_graph(nodes, "body", given, results)


def branch(operator: str, **attributes) -> onnx.GraphProto:
    return body(op(operator, "x", **attributes))


# The batch axis of inputs and outputs


def test_axis_0_is_tried_first(tmp_path) -> None:
    proof = prove(tmp_path, model(op("Relu", "x")))
    assert (proof.verdict, proof.input_axes, proof.output_axes) == ("independent", {"x": 0}, {"y": 0})


def test_a_time_first_model_has_its_batch_on_axis_1(tmp_path) -> None:
    built = model(op("LSTM", "x w r", "- y", hidden_size=2), inputs={"x": ["time", "batch", 4]}, constants=LSTM)
    proof = prove(tmp_path, built)
    assert (proof.verdict, proof.input_axes, proof.output_axes) == ("independent", {"x": 1}, {"y": 1})


def test_a_time_first_model_without_names_is_found_too(tmp_path) -> None:
    built = model(op("LSTM", "x w r", "- y", hidden_size=2), inputs={"x": [None, None, 4]}, constants=LSTM)
    assert prove(tmp_path, built).input_axes == {"x": 1}


def test_inputs_without_the_shared_axis_must_be_equal(tmp_path) -> None:
    built = model(op("Mul", "x scale"), inputs={"x": ["n", 4], "scale": []})
    assert prove(tmp_path, built).input_axes == {"x": 0, "scale": None}
    built = model(op("Mul", "x scale"), inputs={"x": ["n", 4], "scale": [4]})
    proof = prove(tmp_path, built)
    assert (proof.verdict, proof.input_axes) == ("independent", {"x": 0, "scale": None})


def test_a_state_may_have_its_rows_on_another_axis(tmp_path) -> None:
    built = model(
        op("Transpose", "x", "t", perm=[1, 0, 2]),
        op("LSTM", "t w r - - h h", "- y", hidden_size=2),
        inputs={"x": [None, 5, 4], "h": [1, None, 2]},
        constants=LSTM,
    )
    proof = prove(tmp_path, built)
    assert (proof.input_axes, proof.output_axes) == ({"x": 0, "h": 1}, {"y": 1})


def test_axes_can_be_named(tmp_path) -> None:
    built = model(op("Softmax", "x", axis=0), inputs={"x": ["a", "b"]})
    assert prove(tmp_path, built, batch_axes={"x": 0}).verdict == "mixes"
    assert prove(tmp_path, built, batch_axes={"x": 1}).output_axes == {"y": 1}
    wrong = prove(tmp_path, built, batch_axes={"x": 1, "y": 0})
    assert (wrong.verdict, wrong.reason.why) == (
        "unknown",
        'output "y" has its rows along axis 1, not along the axis 0 that was named',
    )
    assert prove(tmp_path, built, batch_axes={"x": 7}).verdict == "unknown"


def test_an_axis_that_has_the_length_of_the_batch_is_not_independent(tmp_path) -> None:
    for name in ("n", "2*n"):
        proof = prove(tmp_path, model(op("Relu", "x"), inputs={"x": ["n", name]}), batch_axes={"x": 0})
        assert proof.verdict != "independent"


def test_axes_of_one_name_may_have_different_lengths(tmp_path) -> None:
    """Engines do not compare them. With another time in z, the rows of x would be cut apart."""
    nodes = [
        op("Shape", "z", "shape"),
        op("Gather", "shape zero", "time"),
        op("Concat", "time minus", "target", axis=0),
        op("Reshape", "x target"),
    ]
    constants = {"zero": ints(0), "minus": ints(-1)}
    built = model(*nodes, inputs={"x": ["time", "n"], "z": ["time", 3]}, constants=constants)
    assert prove(tmp_path, built, batch_axes={"x": 1, "z": None}).verdict == "unknown"


def test_an_output_without_rows_is_the_same_for_all(tmp_path) -> None:
    proof = prove(tmp_path, model(op("Relu", "x"), op("Identity", "w", "z"), outputs="y z", constants={"w": floats(2)}))
    assert proof.output_axes == {"y": 0, "z": None}


def test_an_output_that_counts_rows_mixes(tmp_path) -> None:
    proof = prove(tmp_path, model(op("Shape", "x", "y"), kinds={"y": TensorProto.INT64}))
    assert (proof.verdict, proof.reason.why) == ("mixes", 'output "y" is computed from the number of rows')


@pytest.mark.parametrize(
    "nodes",
    [
        [op("ArgMax", "x", "i", axis=1, keepdims=0), op("Gather", "shape i")],
        [op("Tile", "shape repeats", "t"), op("ReduceMax", "t", "m", axes=[0]), op("Add", "k m")],
        [op("CenterCropPad", "shape two", "c"), op("ReduceMax", "c", "m", axes=[0]), op("Add", "k m")],
        [op("Expand", "shape repeats", "e"), op("Add", "k e")],
        [op("Mul", "k n")],
        [op("Max", "k n")],
        [op("Where", "flag n k")],
        [op("Unsqueeze", "shape zero", "u"), op("MatMul", "u two")],
    ],
)
def test_no_operator_hides_the_number_of_rows_in_a_result(nodes, tmp_path) -> None:
    first = [
        op("Shape", "x", "shape"),
        op("Gather", "shape zero", "n"),
        op("Cast", "x", "k", to=TensorProto.INT64),
        op("Cast", "x", "flag", to=TensorProto.BOOL),
    ]
    constants = {"zero": ints(0), "two": ints(1, 2)}
    inputs = {"x": [ROWS, 4], "repeats": [1]}
    built = model(*first, *nodes, inputs=inputs, constants=constants, kinds={"repeats": TensorProto.INT64}, opset=18)
    assert prove(tmp_path, built, batch_axes={"x": 0, "repeats": None}).verdict != "independent"


def test_a_list_has_no_batch_axis(tmp_path) -> None:
    proof = prove(tmp_path, model(op("SequenceConstruct", "x x")))
    assert (proof.verdict, proof.reason.operator) == ("unknown", "SequenceConstruct")


def test_a_fixed_number_of_rows_is_followed(tmp_path) -> None:
    built = model(op("Reshape", "x s"), inputs={"x": [4, 6]}, constants={"s": ints(4, 3, 2)})
    assert prove(tmp_path, built).verdict == "independent"
    built = model(op("Reshape", "x s"), inputs={"x": [4, 6]}, constants={"s": ints(2, 12)})
    assert prove(tmp_path, built).verdict == "unknown"


def test_an_initializer_that_can_be_overridden_is_not_a_constant(tmp_path) -> None:
    built = model(op("ReduceSum", "x a"), constants={"a": ints(1)})
    assert prove(tmp_path, built).verdict == "independent"
    built.graph.input.append(helper.make_tensor_value_info("a", TensorProto.INT64, [1]))
    proof = prove(tmp_path, built)
    assert (proof.verdict, proof.input_axes) == ("unknown", {"x": 0})


@pytest.mark.parametrize("kind", ["make_sequence_type_proto", "make_optional_type_proto"])
def test_inputs_that_are_not_tensors_do_not_stop_the_proof(kind, tmp_path) -> None:
    built = model(op("Relu", "x"))
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [None])
    built.graph.input.append(helper.make_value_info("more", getattr(helper, kind)(tensor)))
    assert prove(tmp_path, built).input_axes == {"x": 0, "more": None}


def test_a_model_without_inputs_is_unknown(tmp_path) -> None:
    proof = prove(tmp_path, model(op("Identity", "w"), inputs={"x": []}, constants={"w": floats(2)}))
    assert (proof.verdict, proof.reason.why) == ("unknown", "the model has no input with a batch axis")


# Subgraphs


def test_a_branch_by_a_known_condition_is_the_only_one_followed(tmp_path) -> None:
    nodes = [op("If", "on", "y", then_branch=branch("Relu"), else_branch=branch("Softmax", axis=0))]
    assert prove(tmp_path, model(*nodes, constants={"on": np.True_})).verdict == "independent"
    assert prove(tmp_path, model(*nodes, constants={"on": np.False_})).verdict == "mixes"


def test_both_branches_of_an_unknown_condition_are_followed(tmp_path) -> None:
    inputs, kinds = {"x": [ROWS, 4], "on": []}, {"on": TensorProto.BOOL}
    for other, verdict in ((branch("Abs"), "independent"), (branch("Softmax", axis=0), "mixes")):
        nodes = [op("If", "on", "y", then_branch=branch("Relu"), else_branch=other)]
        assert prove(tmp_path, model(*nodes, inputs=inputs, kinds=kinds)).verdict == verdict


def test_a_condition_on_the_rows_mixes(tmp_path) -> None:
    nodes = [
        op("Cast", "x", "on", to=TensorProto.BOOL),
        op("If", "on", "y", then_branch=branch("Relu"), else_branch=branch("Abs")),
    ]
    proof = prove(tmp_path, model(*nodes, inputs={"x": [ROWS]}))
    assert (proof.verdict, proof.reason.why) == ("mixes", "chooses its branch by the data of the rows")


def test_a_condition_on_the_number_of_rows_is_not_independent(tmp_path) -> None:
    nodes = [
        op("Shape", "x", "s"),
        op("Gather", "s zero", "n"),
        op("Equal", "n one", "on"),
        op("If", "on", "y", then_branch=branch("Relu"), else_branch=branch("Softmax")),
    ]
    proof = prove(tmp_path, model(*nodes, constants={"zero": np.int64(0), "one": np.int64(1)}))
    assert proof.verdict == "unknown"


def test_a_branch_that_drops_an_axis_is_followed_by_itself(tmp_path) -> None:
    """torch exports squeeze(-1) so. A recurrent layer fails on the result of the other branch, so there is none."""
    squeeze = body(op("Constant", "", "a", value_ints=[2]), op("Squeeze", "x a"))
    nodes = [
        op("Shape", "x", "s"),
        op("Gather", "s last", "n"),
        op("Equal", "n one", "on"),
        op("If", "on", "z", then_branch=squeeze, else_branch=branch("Identity")),
        op("Unsqueeze", "z zero", "u"),
        op("LSTM", "u w r", "- y", hidden_size=2),
    ]
    constants = {**LSTM, "last": np.int64(2), "one": np.int64(1), "zero": ints(0)}
    proof = prove(tmp_path, model(*nodes, inputs={"x": ["n", 4, "t"]}, constants=constants))
    assert (proof.verdict, proof.output_axes) == ("independent", {"y": 1})


def loop(*nodes: onnx.NodeProto, outputs: str = "goes s1") -> onnx.NodeProto:
    inner = body(op("Identity", "go", "goes"), *nodes, inputs="i go s", outputs=outputs)
    return op("Loop", "count - x", "y" if outputs == "goes s1" else "- y", body=inner)


@pytest.mark.parametrize(
    ("node", "verdict", "axis"),
    [
        (loop(op("Softmax", "s", "s1")), "independent", 0),
        (loop(op("Softmax", "s", "s1", axis=0)), "mixes", None),
        (loop(op("Concat", "s s", "s1", axis=1)), "independent", 0),
        (loop(op("Transpose", "s", "s1")), "unknown", None),
        (loop(op("Relu", "s", "s1"), op("Identity", "s", "each"), outputs="goes s1 each"), "independent", 1),
    ],
)
def test_a_loop_is_followed_until_its_state_is_known(node, verdict, axis, tmp_path) -> None:
    proof = prove(tmp_path, model(node, constants={"count": np.int64(3)}))
    assert (proof.verdict, proof.output_axes.get("y")) == (verdict, axis), proof.reason


def test_a_loop_over_the_rows_is_not_independent(tmp_path) -> None:
    count = [op("Shape", "x", "s"), op("Gather", "s zero", "count")]
    proof = prove(tmp_path, model(*count, loop(op("Relu", "s", "s1")), constants={"zero": np.int64(0)}))
    assert (proof.verdict, proof.reason.why) == ("unknown", "repeats as often as there are rows")


@pytest.mark.parametrize(("axis", "verdict", "where"), [(1, "independent", 1), (0, "mixes", None)])
def test_a_scan_mixes_along_its_axis(axis, verdict, where, tmp_path) -> None:
    inner = body(op("Add", "s e", "s1"), op("Identity", "s1", "each"), inputs="s e", outputs="s1 each")
    nodes = [
        op("ReduceMax", "x", "start", axes=[axis], keepdims=0),
        op("Scan", "start x", "- y", body=inner, num_scan_inputs=1, scan_input_axes=[axis]),
    ]
    proof = prove(tmp_path, model(*nodes), batch_axes={"x": 0})
    assert (proof.verdict, proof.output_axes.get("y")) == (verdict, where)


# Local functions


def local(name: str, *nodes: onnx.NodeProto, attributes=(), overload: str = "", **more) -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, ["x"], ["y"], nodes, opsets, attributes, overload=overload, **more)


def test_a_local_function_is_followed_with_its_attributes(tmp_path) -> None:
    softmax = op("Softmax", "x")
    axis = softmax.attribute.add()
    axis.name, axis.type, axis.ref_attr_name = "axis", onnx.AttributeProto.INT, "along"
    function = local("norm", softmax, attributes=["along"])
    for along, verdict in ((1, "independent"), (0, "mixes")):
        built = model(op("norm", "x", domain="local", along=along), functions=[function])
        assert prove(tmp_path, built).verdict == verdict
    function = local("norm", softmax, attribute_protos=[helper.make_attribute("along", 0)])
    assert prove(tmp_path, model(op("norm", "x", domain="local"), functions=[function])).verdict == "mixes"


def test_a_reference_to_an_attribute_outside_of_a_function_is_unknown(tmp_path) -> None:
    softmax = op("Softmax", "x")
    axis = softmax.attribute.add()
    axis.name, axis.type, axis.ref_attr_name = "axis", onnx.AttributeProto.INT, "along"
    assert prove(tmp_path, model(softmax)).verdict == "unknown"


def test_an_attribute_that_is_given_twice_is_unknown(tmp_path) -> None:
    softmax = op("Softmax", "x", axis=1)
    softmax.attribute.append(helper.make_attribute("axis", 0))
    assert prove(tmp_path, model(softmax)).verdict == "unknown"


def test_overloads_are_different_functions(tmp_path) -> None:
    functions = [local("f", op("Relu", "x"), overload="a"), local("f", op("Softmax", "x", axis=0), overload="b")]
    for overload, verdict in (("a", "independent"), ("b", "mixes"), ("c", "unknown")):
        node = op("f", "x", domain="local")
        node.overload = overload
        assert prove(tmp_path, model(node, functions=functions)).verdict == verdict


def test_a_function_with_the_name_of_an_operator_is_unknown(tmp_path) -> None:
    function = local("Relu", op("Softmax", "x", axis=0))
    function.domain = ""
    assert prove(tmp_path, model(op("Relu", "x"), functions=[function])).verdict == "unknown"


def test_functions_that_double_each_other_end_at_the_limit(tmp_path) -> None:
    functions = [local("f0", op("Relu", "x"))]
    for at in range(1, 14):
        inner = op(f"f{at - 1}", "x", "z", domain="local"), op(f"f{at - 1}", "z", domain="local")
        functions.append(local(f"f{at}", *inner))
    assert prove(tmp_path, model(op("f13", "x", domain="local"), functions=functions)).verdict == "independent"
    with pytest.raises(hami.ConfigError, match="max_nodes = 1,000"):
        prove(tmp_path, model(op("f13", "x", domain="local"), functions=functions), max_nodes=1000)


def test_nested_loops_end_at_a_limit(tmp_path) -> None:
    node = op("Concat", "s s", "s1", axis=1)
    for _ in range(9):
        inner = body(op("Identity", "go", "goes"), node, inputs="i go s", outputs="goes s1")
        node = op("Loop", "count - s", "s1", body=inner)
    first = op("Identity", "x", "s")
    built = model(first, node, op("Identity", "s1", "y"), constants={"count": np.int64(3)})
    assert prove(tmp_path, built).verdict in ("independent", "unknown")


# Files


def test_a_file_that_changes_is_read_again(tmp_path) -> None:
    assert prove(tmp_path, model(op("Relu", "x"))).verdict == "independent"
    assert prove(tmp_path, model(op("Softmax", "x", axis=0, name="longer"))).verdict == "mixes"


def test_nodes_need_no_order(tmp_path) -> None:
    built = model(op("Softmax", "t", axis=0), op("Relu", "x", "t"))
    assert prove(tmp_path, built).reason.operator == "Softmax"


def test_a_damaged_file_is_an_error(tmp_path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model(op("Relu", "x")).SerializeToString()[:-3])
    with pytest.raises(hami.ConfigError, match=r"Test: .*model\.onnx"):
        prove_rows(path, backend="Test")


@pytest.mark.skipif(not GENERATOR.is_file(), reason="not in a checkout")
def test_the_table_of_operators_in_the_documents_is_current() -> None:
    done = subprocess.run([sys.executable, GENERATOR, "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")

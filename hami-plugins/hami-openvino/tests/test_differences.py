"""What OpenVINO computes differently from ONNX is found when a model is opened: refused, or listed."""

from __future__ import annotations

import re
from pathlib import Path

import hami
import numpy as np
import onnx
import openvino
import pytest
from conftest import array, floats, message, save, values
from hami_model_check.graph import read_graph
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from hami_openvino._difference_rules import RULES
from hami_openvino.differences import find_differences, openvino_version

RANDOM = np.random.default_rng(0)
IMAGE = RANDOM.standard_normal((2, 4, 7, 7)).astype(np.float32)
SMALL_IMAGE = RANDOM.standard_normal((2, 4, 6, 6)).astype(np.float32)
LINE = RANDOM.uniform(0.1, 2, (3, 4)).astype(np.float32)
CUBE = RANDOM.standard_normal((2, 3, 4)).astype(np.float32)
KERNEL = RANDOM.standard_normal((4, 2, 3, 3)).astype(np.float32)
SEQUENCE = RANDOM.standard_normal((4, 2, 2)).astype(np.float32)  # time, batch, features
LSTM = {"w": RANDOM.standard_normal((1, 12, 2)), "r": RANDOM.standard_normal((1, 12, 3))}
GRU = {"w": RANDOM.standard_normal((1, 9, 2)), "r": RANDOM.standard_normal((1, 9, 3))}
WEIGHTS_OF_PEEPHOLES = {
    "b": np.zeros((1, 24)),
    "h": np.zeros((1, 2, 3)),
    "c": np.zeros((1, 2, 3)),
    "p": RANDOM.standard_normal((1, 9)),
}
QUERY = RANDOM.standard_normal((1, 2, 4, 4)).astype(np.float32)
ROIS = {"rois": np.float32([[0, 0, 5, 5]]), "batch": np.array([0])}
SCALES = {"scales": np.float32([1, 1, 0.6, 0.6])}
SIGNALS = RANDOM.standard_normal((2, 8, 6, 2)).astype(np.float32)
LIMITS = {"a": np.array([1]), "b": np.array([2**63 - 1])}
SIZES = {"sizes": np.array([2, 4, 3, 5])}

KINDS = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float64): TensorProto.DOUBLE}
KINDS |= {np.dtype(np.int8): TensorProto.INT8, np.dtype(np.uint8): TensorProto.UINT8}
KINDS |= {np.dtype(np.int16): TensorProto.INT16}
KINDS |= {np.dtype(np.int32): TensorProto.INT32, np.dtype(np.int64): TensorProto.INT64}
KINDS |= {np.dtype(np.uint32): TensorProto.UINT32, np.dtype(np.uint64): TensorProto.UINT64}


def reduces(operator):
    return (operator, "x", {"axes": [1]}, 13, LINE, {})


def pools(operator, data=IMAGE, **attributes):
    return (operator, "x", {"strides": [2, 2], "ceil_mode": 1, **attributes}, 12, data, {})


def transposes(**attributes):
    return ("ConvTranspose", "x k", {"strides": [2, 2], **attributes}, 11, IMAGE, {"k": KERNEL})


def shifts(direction, data, opset=11):
    return ("BitShift", "x s", {"direction": direction}, opset, data, {"s": np.ones(2, data.dtype)})


def resizes(inputs, constants, **attributes):
    return ("Resize", inputs, attributes, 19, IMAGE, constants)


def recurs(operator, inputs="x w r", constants=(), data=SEQUENCE, **attributes):
    weights = {**(LSTM if operator == "LSTM" else GRU), **dict(constants)}
    weights = {name: np.asarray(value, np.float32) for name, value in weights.items()}
    return (operator, inputs, {"hidden_size": 3, **attributes}, 14, data, weights)


# operator, inputs ("_" is left out), attributes, opset, data, constants.
REFUSED = {
    "ReduceL1": reduces("ReduceL1"),
    "ReduceLogSum": reduces("ReduceLogSum"),
    "ReduceLogSumExp": reduces("ReduceLogSumExp"),
    "Softmax": ("Softmax", "x", {}, 11, CUBE, {}),
    "Softmax along the batch": ("Softmax", "x", {"axis": 0}, 12, LINE, {}),
    "MaxPool with padding": pools("MaxPool", kernel_shape=[2, 2], pads=[1, 1, 1, 1]),
    "MaxPool with skipped elements": pools("MaxPool", data=SMALL_IMAGE, kernel_shape=[1, 1]),
    "ConvTranspose SAME_UPPER": transposes(auto_pad="SAME_UPPER"),
    "ConvTranspose output_shape": transposes(auto_pad="SAME_UPPER", output_shape=[14, 14]),
    "SpaceToDepth": ("SpaceToDepth", "x", {"blocksize": 2, "mode": "CRD"}, 28, SMALL_IMAGE, {}),
    "Resize antialias": resizes("x _ scales", SCALES, mode="linear", antialias=1),
    "Resize keep_aspect_ratio_policy": resizes(
        "x _ _ sizes", SIZES, mode="nearest", keep_aspect_ratio_policy="not_larger"
    ),
    "Resize exclude_outside": resizes("x _ scales", SCALES, mode="cubic", exclude_outside=1),
    "LSTM with peepholes": recurs("LSTM", "x w r b _ h c p", WEIGHTS_OF_PEEPHOLES),
    "LSTM of batches first": recurs("LSTM", data=SEQUENCE.transpose(1, 0, 2).copy(), layout=1),
    "GRU of batches first": recurs("GRU", data=SEQUENCE.transpose(1, 0, 2).copy(), layout=1),
    "RoiAlign": ("RoiAlign", "x rois batch", {"mode": "max", "output_height": 2, "output_width": 2}, 16, IMAGE, ROIS),
    "DFT": ("DFT", "x", {"onesided": 1, "axis": 1}, 17, RANDOM.standard_normal((2, 8, 1)).astype(np.float32), {}),
    "DFT along axis 2": ("DFT", "x", {}, 20, SIGNALS, {}),
    "Attention": ("Attention", "x x x", {"left_window_size": 1, "right_window_size": 0}, 25, QUERY, {}),
    "int8": ("Add", "x x", {}, 17, np.int8([[100, 3]]), {}),
    "uint8": ("Mul", "x x", {}, 17, np.uint8([[100, 3]]), {}),
    "Div of 8 bits": ("Div", "x c", {}, 17, np.int8([[7, -7]]), {"c": np.int8([2])}),
    "BitShift of 8 bits": shifts("LEFT", np.uint8([200, 3])),
    "BitShift of negative numbers": shifts("RIGHT", np.int32([-9, 9]), opset=28),
    "constant": ("Add", "x c", {}, 17, np.array([[1, 2]]), {"c": np.array([5_000_000_000])}),
}
# Operators beside these rules, which OpenVINO computes as ONNX does.
TAKEN = {
    "ReduceL1 of all axes": ("ReduceL1", "x", {}, 13, LINE, {}),
    "ReduceL1 of opset 18": ("ReduceL1", "x a", {}, 18, LINE, {"a": np.array([1])}),
    "ReduceL1 of opset 12": ("ReduceL1", "x", {"axes": [1]}, 12, LINE, {}),
    "ReduceL2": reduces("ReduceL2"),
    "Softmax along the last axis": ("Softmax", "x", {"axis": 2}, 11, CUBE, {}),
    "Softmax of rank 2": ("Softmax", "x", {}, 11, LINE, {}),
    "Softmax of opset 10": ("Softmax", "x", {}, 10, CUBE, {}),
    "Softmax of opset 13": ("Softmax", "x", {"axis": 1}, 13, CUBE, {}),
    "MaxPool with ceil_mode": pools("MaxPool", kernel_shape=[3, 3]),
    "MaxPool with padding and floor": pools("MaxPool", kernel_shape=[2, 2], pads=[1, 1, 1, 1], ceil_mode=0),
    "ConvTranspose with pads": transposes(pads=[1, 1, 1, 1]),
    "SpaceToDepth": ("SpaceToDepth", "x", {"blocksize": 2}, 13, SMALL_IMAGE, {}),
    "Resize": resizes("x _ scales", SCALES, mode="linear"),
    "DFT along axis 1": ("DFT", "x _ axis", {}, 20, SIGNALS, {"axis": np.array(1)}),
    "LSTM": recurs("LSTM"),
    "int32": ("Add", "x x", {}, 17, np.int32([[1_000_000_000, 3]]), {}),
    "Div of 16 bits": ("Div", "x c", {}, 17, np.int16([[7, 9]]), {"c": np.int16([2])}),
    "BitShift of 32 bits": shifts("LEFT", np.uint32([200, 3])),
    "a limit beyond 32 bits": ("Slice", "x a b", {}, 17, np.arange(6).reshape(3, 2), LIMITS),
}


def model_of(case, path: Path) -> Path:
    operator, inputs, attributes, opset, data, constants = case
    names = ["" if name == "_" else name for name in inputs.split()]
    node = helper.make_node(operator, names, ["y"], name="the node", **attributes)
    kind = KINDS[data.dtype]
    shape = ["n", *data.shape[1:]] if operator != "Attention" else data.shape
    inferred = (kind, None)
    return save(path, [node], {"x": (kind, shape)}, {"y": inferred}, constants, opset)


def both(pipe, case, path: Path, **config):
    """Return the result of OpenVINO, and that of the reference implementation."""
    model = model_of(case, path)
    if case[0] == "Softmax" and case[3] < 13:
        expected = flattened_softmax(case[4], case[2].get("axis", 1))  # the reference computes that of opset 13
    else:
        (expected,) = ReferenceEvaluator(onnx.load(model)).run(None, {"x": case[4]})
    return array(pipe(model=str(model), **config)({"data": case[4]})), np.asarray(expected)


def flattened_softmax(data, axis):
    """Return the softmax of opsets up to 12: over all axes from `axis` on."""
    flat = np.exp(data.reshape(int(np.prod(data.shape[:axis])), -1))
    return (flat / flat.sum(1, keepdims=True)).reshape(data.shape)


def are_close(result, expected) -> bool:
    return result.shape == expected.shape and np.allclose(result, expected, rtol=1e-3, atol=1e-4)


def holds_here(case) -> bool:
    """Whether the installed version of OpenVINO has the difference, by the table."""
    return any(
        case[0] in rule.operators and rule.versions[0] <= openvino_version() < rule.versions[1] for rule in RULES
    )


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_with_other_results_than_onnx_defines_is_refused(pipe, tmp_path, name):
    case = REFUSED[name]
    if not holds_here(case):
        pytest.skip(f"OpenVINO {openvino.get_version()} has no such difference")
    with pytest.raises(hami.ConfigError) as error:
        pipe(model=str(model_of(case, tmp_path / "m.onnx")))
    operator, _, _, opset, *_ = case
    text = message(error)
    assert f'would give other results than ONNX defines: {operator} (node "the node", opset {opset}): ' in text
    assert re.search(rf"; \w.*, or accept it with accept_differences = \['{operator}'\]$", text)


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_difference_is_real(pipe, tmp_path, name):
    """A rule that no longer holds for the installed version of OpenVINO needs a bound."""
    case = REFUSED[name]
    if not holds_here(case):
        pytest.skip(f"OpenVINO {openvino.get_version()} has no such difference")
    result, expected = both(pipe, case, tmp_path / "m.onnx", accept_differences=[case[0]])
    assert not are_close(result, expected)


@pytest.mark.parametrize("name", TAKEN)
def test_a_model_beside_the_rules_runs_and_is_right(pipe, tmp_path, name):
    result, expected = both(pipe, TAKEN[name], tmp_path / "m.onnx")
    assert are_close(result, expected)


def test_all_differences_of_a_model_are_named(pipe, tmp_path):
    nodes = [
        helper.make_node("ReduceL1", ["x"], ["r"], axes=[1], name="first"),
        helper.make_node("Tile", ["r", "times"], ["t"], name="second"),
        helper.make_node("ReduceL1", ["t"], ["y"], axes=[1], name="third"),
    ]
    inputs = {"x": (TensorProto.FLOAT, [1, 2, 3, 4]), "times": (TensorProto.INT64, [4])}
    path = save(tmp_path / "m.onnx", nodes, inputs, {"y": (TensorProto.FLOAT, None)}, opset=13)
    with pytest.raises(hami.ConfigError) as error:
        pipe(model=str(path))
    first, second, *_ = str(error.value).splitlines()
    assert 'ReduceL1 (node "first", opset 13) and 1 more: reduces over all axes instead of `axes`' in first
    assert "accept_differences = ['ReduceL1', 'Tile']" in first
    assert second.startswith('also: Tile (node "second", opset 13): returns zeros if ')
    with pytest.raises(hami.ConfigError, match="Tile"):
        pipe(model=str(path), accept_differences=["ReduceL1"])
    pipe(model=str(path), accept_differences=["ReduceL1", "Tile"])


def test_the_number_of_axes_is_also_known_from_what_the_file_declares_at_the_end(tmp_path):
    """As in a classifier of PaddleOCR, whose Reshape takes a shape that is computed."""
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node("Softmax", ["r"], ["s"], axis=1),
        helper.make_node("Identity", ["s"], ["y"]),
    ]
    inputs = {"x": (TensorProto.FLOAT, [-1, 4]), "shape": (TensorProto.INT64, [None])}
    path = save(tmp_path / "m.onnx", nodes, inputs, {"y": (TensorProto.FLOAT, [-1, 2])}, opset=11)
    assert not any(each.refused for each in find_differences(path))
    assert read_graph(path).main.inputs[0].shape == (None, 4)
    path = save(tmp_path / "m.onnx", nodes, inputs, {"y": (TensorProto.FLOAT, [-1, 2, 3])}, opset=11)
    assert [each.operator for each in find_differences(path) if each.refused] == ["Softmax"]


def test_a_difference_in_a_subgraph_is_found(tmp_path):
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1])
    branches = [
        helper.make_graph([helper.make_node(operator, ["x"], ["y"], axes=[1])], "branch", [], [out])
        for operator in ("ReduceL1", "ReduceL2")
    ]
    node = helper.make_node("If", ["on"], ["y"], then_branch=branches[0], else_branch=branches[1])
    inputs = {"x": (TensorProto.FLOAT, ["n", 2]), "on": (TensorProto.BOOL, [])}
    path = save(tmp_path / "m.onnx", [node], inputs, {"y": (TensorProto.FLOAT, ["n", 1])}, opset=13)
    (found,) = find_differences(path)
    assert (found.operator, found.opset, found.refused) == ("ReduceL1", 13, True)


def test_a_file_newer_than_the_known_ones_is_refused(pipe, tmp_path):
    path = save(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])], *PORTS)
    model = onnx.load(path)
    model.opset_import[0].version = 99
    model.ir_version = 99
    onnx.save(model, path)
    with pytest.raises(hami.ConfigError) as error:
        pipe(model=str(path))
    assert "model (opset 99): opset 99 is newer than 28" in message(error)
    assert "also: model (opset 99): IR version 99 is newer than 14" in str(error.value)


PORTS = {"x": (TensorProto.FLOAT, ["n", 4])}, {"y": (TensorProto.FLOAT, ["n", 4])}
INF, NAN = np.inf, np.nan

# operator, inputs, attributes, opset, data, constants; and what OpenVINO returns for values at the edge.
STEP = {"s": np.float32(1), "z": np.uint8(1)}
LISTED = {
    "Relu": ("Relu", "x", {}, 17, floats([NAN, -1, 1, 2]), {}),
    "Clip": ("Clip", "x a b", {}, 17, floats([NAN, -1, 1, 2]), {"a": np.float32(0), "b": np.float32(1)}),
    "Max": ("Max", "x a", {}, 17, floats([NAN, -1, 1, 2]), {"a": np.float32([0])}),
    "Softmax": ("Softmax", "x", {}, 17, floats([NAN, -1, 1, 2]), {}),
    "Exp": ("Exp", "x", {}, 17, floats([88.6, 1, 2, 3]), {}),
    "QuantizeLinear": (
        "QuantizeLinear",
        "x s z",
        {},
        17,
        floats([0.5, 1.5, 2.5, 3]),
        {"s": np.float32(1), "z": np.uint8(1)},
    ),
    "Neg": ("Neg", "x", {}, 17, np.int8([[-128, 3]]), {}),
    "64 bits": ("Mul", "x x", {}, 17, np.array([[100_000, 2]]), {}),
    "Div of large integers": ("Div", "x c", {}, 17, np.int32([[16_777_217, 2]]), {"c": np.int32([1])}),
    "float64": ("Add", "x x", {}, 17, np.array([[1 + 1e-12, 2]]), {}),
}


@pytest.mark.parametrize("name", LISTED)
def test_a_difference_at_the_edge_is_listed_and_the_model_runs(pipe, tmp_path, name, caplog):
    case = LISTED[name]
    path = tmp_path / "m.onnx"
    with caplog.at_level("INFO", "hami.openvino"):
        result, expected = both(pipe, case, path)
    assert f'"{path}": OpenVINO differs from ONNX: {case[0]} (node "the node", opset {case[3]}): ' in caplog.text
    assert [(each.operator, each.refused) for each in find_differences(path)] == [(case[0], False)]
    with np.errstate(all="ignore"):
        difference = result.astype(np.float64) - expected.astype(np.float64)
    assert not np.array_equal(difference, np.zeros_like(difference))


REDUCED = np.array([[3, -7, 0, 1], [41, 5, -2, 0]], np.int64)
BEHIND_REDUCE = {  # operators between ReduceMax and Div, and the inputs of Div
    "dividend": ([], "m c"),
    "divisor": ([], "c m"),
    "squeezed": ([("Squeeze", "m a", "s")], "s c"),
    "negated": ([("Neg", "m", "s")], "s c"),
    "added to": ([("Add", "m c", "s")], "s c"),
    "transposed": ([("Transpose", "m", "s")], "s c"),
    "a constant minus it": ([("Sub", "c m", "s")], "s c"),
    "used twice for its shape": ([("Shape", "m", "t"), ("Neg", "m", "s")], "s c"),
}


def behind_reduce(path, between, inputs, kind=TensorProto.INT64):
    nodes = [
        helper.make_node("ReduceMax", ["x", "a"], ["m"], keepdims=1),
        *(helper.make_node(operator, names.split(), [after]) for operator, names, after in between),
        helper.make_node("Div", inputs.split(), ["y"], name="the node"),
    ]
    constants = {"a": np.array([1]), "c": np.array(3, onnx.helper.tensor_dtype_to_np_dtype(kind))}
    return save(path, nodes, {"x": (kind, ["n", 4])}, {"y": (kind, None)}, constants, 18)


@pytest.mark.parametrize("name", BEHIND_REDUCE)
def test_an_integer_quotient_behind_a_reduction_is_refused_and_really_differs(pipe, tmp_path, name):
    path = behind_reduce(tmp_path / "m.onnx", *BEHIND_REDUCE[name])
    with pytest.raises(hami.ConfigError, match="rounds integer quotients to the nearest"):
        pipe(model=str(path))
    (expected,) = ReferenceEvaluator(onnx.load(path)).run(None, {"x": REDUCED})
    result = array(pipe(model=str(path), accept_differences=["Div"])({"data": REDUCED}))
    assert not np.array_equal(result, expected)


TAKEN_BEHIND_REDUCE = {
    "no constant": ([], "m x"),
    "no reduction": ([], "x c"),
    "used twice": ([("Neg", "m", "t"), ("Add", "m t", "u"), ("Sub", "u t", "s")], "s c"),
    "another tensor added": ([("Add", "m x", "s")], "s c"),
    "a product with itself": ([("Mul", "m m", "s")], "s c"),
}


@pytest.mark.parametrize("name", TAKEN_BEHIND_REDUCE)
def test_other_integer_quotients_are_taken_and_right(pipe, tmp_path, name):
    path = behind_reduce(tmp_path / "m.onnx", *TAKEN_BEHIND_REDUCE[name])
    data = np.array([[3, 7, 9, 1], [41, 5, 2, 4]], np.int64)
    (expected,) = ReferenceEvaluator(onnx.load(path)).run(None, {"x": data})
    assert np.array_equal(array(pipe(model=str(path))({"data": data})), expected)


@pytest.mark.parametrize("operator", ["ReduceSum", "Split"])
def test_floats_whose_type_no_file_declares_are_no_integers(tmp_path, operator):
    constants = {"a": np.array([1]), "b": np.array([0]), "c": np.float32(64)}
    first = (
        helper.make_node("Split", ["x"], ["s", "t"], axis=1, num_outputs=2)
        if operator == "Split"
        else helper.make_node("ReduceSum", ["x", "a"], ["s"])
    )
    nodes = [first, helper.make_node("ReduceSum", ["s", "b"], ["m"]), helper.make_node("Div", ["m", "c"], ["y"])]
    path = save(tmp_path / "m.onnx", nodes, PORTS[0], {"y": (TensorProto.FLOAT, None)}, constants, 18)
    assert find_differences(path) == []


def test_a_float_quotient_behind_a_reduction_is_taken_and_right(pipe, tmp_path):
    path = behind_reduce(tmp_path / "m.onnx", [], "c m", TensorProto.FLOAT)
    data = np.float32([[3, 7, 9, 1], [41, 5, 2, 4]])
    np.testing.assert_allclose(array(pipe(model=str(path))({"data": data})), 3 / data.max(1, keepdims=True), rtol=1e-5)


CHAINS = {
    "Floor": ([("Div", {}), ("Floor", {})], floats([41, 82, 7, 3]), floats([41, 41, 7, 3])),
    "Ceil": ([("Div", {}), ("Ceil", {})], floats([21, 42, 45, 3]), floats([7, 14, 15, 3])),
    "Cast": ([("Div", {}), ("Cast", {"to": TensorProto.INT32})], floats([41, 82, 7, 3]), floats([41, 41, 7, 3])),
    "Cast to float16": (
        [("Mul", {}), ("Cast", {"to": TensorProto.FLOAT16}), ("Cast", {"to": TensorProto.FLOAT})],
        floats([70_000, 0.1, 1, 2]),
        floats([1, 1, 1, 1]),
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_difference_between_two_operators_is_listed(pipe, tmp_path, name):
    chain, data, other = CHAINS[name]
    values = ["x", *(f"v{i}" for i in range(1, len(chain))), "y"]
    nodes = [
        helper.make_node(operator, [value, "other"] if value == "x" else [value], [after], **attributes)
        for (operator, attributes), value, after in zip(chain, values, values[1:], strict=False)
    ]
    kind = chain[-1][1].get("to", TensorProto.FLOAT)
    path = save(tmp_path / "m.onnx", nodes, PORTS[0], {"y": (kind, None)}, {"other": other}, 17)
    assert [(each.operator, each.refused) for each in find_differences(path)] == [(chain[1][0], False)]
    with np.errstate(over="ignore"):
        (expected,) = ReferenceEvaluator(onnx.load(path)).run(None, {"x": data})
    assert not np.array_equal(array(pipe(model=str(path))({"data": data})), expected)


def test_a_refused_difference_that_is_accepted_is_a_warning(pipe, tmp_path, caplog):
    path = model_of(REFUSED["int8"], tmp_path / "m.onnx")
    pipe(model=str(path), accept_differences=["Add", "Sub"], instance_num=2)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 2
    assert '"Sub"' in warnings[0] or "no known difference of Sub" in warnings[0]
    assert "OpenVINO differs from ONNX: Add" in warnings[1]


@pytest.mark.parametrize(("dtype", "value"), [(np.int64, 2**31), (np.int64, -(2**31) - 1), (np.uint64, 2**31)])
def test_a_value_beyond_32_bits_fails_its_request_alone(pipe, models, dtype, value):
    """OpenVINO would copy another value, without an error."""
    kind = TensorProto.INT64 if dtype == np.int64 else TensorProto.UINT64
    identity = pipe(model=str(models.identity(kind)))
    requests = [{"data": np.array([[each, 7]], dtype)} for each in (1, value, 3)]
    with pytest.raises(hami.BatchError) as error:
        identity(requests)
    ((index, reason),) = error.value.errors
    assert (index, type(reason)) == (1, hami.RequestError)
    assert str(reason) == (
        f'OpenvinoTensor: input "x" has a value outside of -2147483648 to 2147483647; OpenVINO computes '
        f"{np.dtype(dtype).name} in 32 bits and would use another value"
    )
    assert values(requests[0]) == [[1, 7]]
    assert values(requests[2]) == [[3, 7]]
    strided = np.array([[1, value, 3, 4]], dtype)[:, ::-1]
    with pytest.raises(hami.RequestError):
        identity({"data": strided})
    assert values(identity({"data": np.array([[2**31 - 1, 5]], dtype)[:, ::-1]})) == [[5, 2**31 - 1]]


def test_explain_says_that_the_operators_of_an_old_openvino_were_not_checked(pipe, models, monkeypatch):
    sentence = "default: the operators of OpenVINO 2026.2 were not checked; those of 2026.4 were"
    path = str(models.identity(TensorProto.FLOAT))
    assert sentence not in pipe(model=path).remarks()
    monkeypatch.setattr("hami_openvino._check.openvino_version", lambda: (2026, 2))
    assert sentence in pipe(model=path).remarks()

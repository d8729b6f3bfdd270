"""Each family of operators keeps rows apart along one axis, mixes them along another, or is unknown."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto
from row_models import ROWS, floats, ints, model, op, prove

INDEPENDENT, MIXES, UNKNOWN = "independent", "mixes", "unknown"
IMAGES = {"x": [ROWS, 3, 8, 8]}
SEQUENCES = {"x": [ROWS, 5, 4]}
TWO = {"x": [ROWS, 4], "z": [ROWS, 4]}
SHAPE_OF_X = op("Shape", "x", "shape")
HALVES = [
    op("Shape", "x", "shape"),
    op("Gather", "shape zero", "rows", axis=0),
    op("Concat", "rows half", "target", axis=0),
]
HALF = {"zero": ints(0), "half": ints(2, 2)}
RNN = {"w": floats(1, 8, 4), "r": floats(1, 8, 2)}

# name: verdict, output axis, what `model` takes
CASES = {
    # elementwise
    "unary": (INDEPENDENT, 0, [op("Relu", "x")], {}),
    "two inputs": (INDEPENDENT, 0, [op("Add", "x z")], {"inputs": TWO}),
    "a bias": (INDEPENDENT, 0, [op("Add", "x b")], {"constants": {"b": floats(4)}}),
    "a constant for each row": (UNKNOWN, None, [op("Add", "x b")], {"constants": {"b": floats(3, 1)}}),
    "rows against rows": (
        MIXES,
        None,
        [op("Transpose", "x", "t", perm=[1, 0]), op("Add", "x t")],
        {},
    ),
    "rows against columns of lower rank": (
        MIXES,
        None,
        [op("ReduceMax", "x", "m", axes=[1], keepdims=0), op("Add", "x m")],
        {},
    ),
    "the number of rows as a number": (
        MIXES,
        None,
        [SHAPE_OF_X, op("Gather", "shape zero", "n"), op("Cast", "n", "f", to=1), op("Div", "x f")],
        {"constants": {"zero": np.int64(0)}},
    ),
    "broadcast of opset 6": (
        UNKNOWN,
        None,
        [op("Add", "x b", broadcast=1)],
        {"opset": 6, "constants": {"b": floats(4)}},
    ),
    "an unknown attribute": (UNKNOWN, None, [op("Relu", "x", mode="row")], {}),
    "a map for each row": (
        INDEPENDENT,
        0,
        [op("ZipMap", "x", domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2, 3])],
        {},
    ),
    "the length of a list of maps": (
        UNKNOWN,
        None,
        [op("ZipMap", "x", "m", domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2, 3]), op("SequenceLength", "m")],
        {},
    ),
    # along axes
    "sum along features": (INDEPENDENT, 0, [op("ReduceMean", "x", axes=[1])], {}),
    "sum along the batch": (MIXES, None, [op("ReduceMean", "x", axes=[0])], {}),
    "sum along all axes": (MIXES, None, [op("ReduceMean", "x")], {}),
    "sum along computed axes": (
        UNKNOWN,
        None,
        [op("ReduceSum", "x a")],
        {"inputs": {"x": [ROWS, 4], "a": [1]}, "kinds": {"a": TensorProto.INT64}},
    ),
    "softmax along features": (INDEPENDENT, 0, [op("Softmax", "x")], {}),
    "softmax along the batch": (MIXES, None, [op("Softmax", "x", axis=0)], {}),
    "softmax of opset 11 flattens": (MIXES, None, [op("Softmax", "x", axis=0)], {"inputs": SEQUENCES, "opset": 11}),
    "softmax of opset 11 after the batch": (INDEPENDENT, 0, [op("Softmax", "x")], {"inputs": SEQUENCES, "opset": 11}),
    "argmax": (INDEPENDENT, 0, [op("ArgMax", "x", axis=1)], {}),
    "argmax of rows": (MIXES, None, [op("ArgMax", "x")], {}),
    "running sum": (INDEPENDENT, 0, [op("CumSum", "x a")], {"constants": {"a": np.int64(1)}}),
    "running sum of rows": (MIXES, None, [op("CumSum", "x a")], {"constants": {"a": np.int64(0)}}),
    "top k": (INDEPENDENT, 0, [op("TopK", "x k", "y i")], {"constants": {"k": ints(2)}}),
    "top rows": (MIXES, None, [op("TopK", "x k", "y i", axis=0)], {"constants": {"k": ints(1)}}),
    "layer norm": (INDEPENDENT, 0, [op("LayerNormalization", "x w")], {"constants": {"w": floats(4)}}),
    "layer norm of all": (MIXES, None, [op("LayerNormalization", "x w", axis=0)], {"constants": {"w": floats(4)}}),
    "norm of opset 9": (MIXES, None, [op("MeanVarianceNormalization", "x")], {"inputs": IMAGES}),
    # shapes
    "transpose": (INDEPENDENT, 1, [op("Transpose", "x")], {}),
    "flatten": (INDEPENDENT, 0, [op("Flatten", "x")], {"inputs": IMAGES}),
    "flatten into one row": (UNKNOWN, None, [op("Flatten", "x", axis=0)], {"inputs": IMAGES}),
    "reshape to a computed shape": (INDEPENDENT, 0, [*HALVES, op("Reshape", "x target")], {"constants": HALF}),
    "reshape with 0 and -1": (INDEPENDENT, 0, [op("Reshape", "x s")], {"constants": {"s": ints(0, 2, -1)}}),
    "reshape across rows": (UNKNOWN, None, [op("Reshape", "x s")], {"constants": {"s": ints(2, -1)}}),
    "reshape to blocks": (UNKNOWN, None, [op("Reshape", "x s")], {"constants": {"s": ints(-1, 2)}}),
    "reshape to blocks and back": (
        INDEPENDENT,
        0,
        [op("Reshape", "x s", "a"), op("MatMul", "a w", "b"), op("Reshape", "b t")],
        {"inputs": SEQUENCES, "constants": {"s": ints(-1, 4), "w": floats(4, 3), "t": ints(-1, 5, 3)}},
    ),
    "reshape of -1 that does not divide": (UNKNOWN, None, [op("Reshape", "x s")], {"constants": {"s": ints(-1, 3)}}),
    "squeeze": (INDEPENDENT, 0, [op("Squeeze", "x a")], {"inputs": {"x": [ROWS, 1]}, "constants": {"a": ints(1)}}),
    "squeeze of a single row": (UNKNOWN, None, [op("Squeeze", "x")], {"inputs": {"x": [ROWS, 4]}}),
    "unsqueeze": (INDEPENDENT, 1, [op("Unsqueeze", "x a")], {"constants": {"a": ints(0)}}),
    "expand by the number of rows": (
        INDEPENDENT,
        0,
        [SHAPE_OF_X, op("Expand", "one shape", "e"), op("Concat", "x e", axis=1)],
        {"constants": {"one": floats(1, 4)}},
    ),
    "expand to the larger of two shapes": (
        INDEPENDENT,
        0,
        [SHAPE_OF_X, op("Max", "shape ones", "larger"), op("Expand", "x larger")],
        {"inputs": SEQUENCES, "constants": {"ones": ints(1, 5, 1)}},
    ),
    "expand to a shape that may be larger": (
        UNKNOWN,
        None,
        [SHAPE_OF_X, op("Max", "shape two", "larger"), op("Expand", "x larger")],
        {"constants": {"two": ints(2, 4)}},
    ),
    "tile": (UNKNOWN, None, [op("Tile", "x r")], {"constants": {"r": ints(2, 1)}}),
    "tile of features": (INDEPENDENT, 0, [op("Tile", "x r")], {"constants": {"r": ints(1, 2)}}),
    "pad": (INDEPENDENT, 0, [op("Pad", "x p")], {"constants": {"p": ints(0, 1, 0, 1)}}),
    "pad with rows": (MIXES, None, [op("Pad", "x p")], {"constants": {"p": ints(1, 0, 0, 0)}}),
    "resize": (
        INDEPENDENT,
        0,
        [op("Resize", "x - s")],
        {"inputs": IMAGES, "constants": {"s": np.float32([1, 1, 2, 2])}},
    ),
    "resize of the batch": (
        UNKNOWN,
        None,
        [op("Resize", "x - s")],
        {"inputs": IMAGES, "constants": {"s": np.float32([2, 1, 1, 1])}},
    ),
    "identity matrix": (MIXES, None, [op("EyeLike", "x")], {}),
    # parts
    "concat": (INDEPENDENT, 0, [op("Concat", "x z", axis=1)], {"inputs": TWO}),
    "concat of rows": (MIXES, None, [op("Concat", "x z", axis=0)], {"inputs": TWO}),
    "split": (INDEPENDENT, 0, [op("Split", "x", "y z", axis=1)], {"outputs": "y z"}),
    "split of rows": (MIXES, None, [op("Split", "x", "y z", axis=0)], {"outputs": "y z"}),
    "slice": (
        INDEPENDENT,
        0,
        [op("Slice", "x s e a")],
        {"constants": {"s": ints(1), "e": ints(3), "a": ints(1)}},
    ),
    "slice of all rows": (INDEPENDENT, 0, [op("Slice", "x s e")], {"constants": {"s": ints(0), "e": ints(1 << 62)}}),
    "slice of rows": (MIXES, None, [op("Slice", "x s e")], {"constants": {"s": ints(0), "e": ints(1)}}),
    "reversed rows": (
        MIXES,
        None,
        [op("Slice", "x s e a t")],
        {"constants": {"s": ints(-1), "e": ints(-1 << 62), "a": ints(0), "t": ints(-1)}},
    ),
    "an embedding": (
        INDEPENDENT,
        0,
        [op("Gather", "w x")],
        {"inputs": {"x": [ROWS, 5]}, "kinds": {"x": TensorProto.INT64}, "constants": {"w": floats(9, 3)}},
    ),
    "the first row": (MIXES, None, [op("Gather", "x i")], {"constants": {"i": np.int64(0)}}),
    "rows by numbers": (
        MIXES,
        None,
        [op("Gather", "x i")],
        {"inputs": {"x": [ROWS, 4], "i": [ROWS]}, "kinds": {"i": TensorProto.INT64}},
    ),
    "gather elements": (
        INDEPENDENT,
        0,
        [op("ArgMax", "x", "i", axis=1), op("GatherElements", "x i", axis=1)],
        {},
    ),
    "gather elements of rows": (MIXES, None, [op("ArgMax", "x", "i", axis=1), op("GatherElements", "x i")], {}),
    "gather in rows": (
        INDEPENDENT,
        0,
        [op("ArgMax", "x", "i", axis=1), op("GatherND", "x i", batch_dims=1)],
        {},
    ),
    "scatter": (
        INDEPENDENT,
        0,
        [
            op("ArgMax", "x", "i", axis=1),
            op("ReduceMax", "x", "u", axes=[1]),
            op("ScatterElements", "x i u", axis=1),
        ],
        {},
    ),
    "non zero": (MIXES, None, [op("NonZero", "x")], {}),
    "unique": (MIXES, None, [op("Unique", "x")], {}),
    "boxes": (
        MIXES,
        None,
        [op("NonMaxSuppression", "x s k")],
        {"inputs": {"x": [ROWS, 6, 4], "s": [ROWS, 1, 6]}, "constants": {"k": ints(3)}},
    ),
    # products
    "matmul": (INDEPENDENT, 0, [op("MatMul", "x w")], {"constants": {"w": floats(4, 3)}}),
    "matmul from the left": (MIXES, None, [op("MatMul", "w x")], {"constants": {"w": floats(3, 5)}}),
    "each with each": (MIXES, None, [op("Transpose", "x", "t"), op("MatMul", "x t")], {}),
    "attention by hand": (
        INDEPENDENT,
        0,
        [
            op("Transpose", "x", "t", perm=[0, 2, 1]),
            op("MatMul", "x t", "s"),
            op("Softmax", "s", "p"),
            op("MatMul", "p x"),
        ],
        {"inputs": SEQUENCES},
    ),
    "gemm": (INDEPENDENT, 0, [op("Gemm", "x w b")], {"constants": {"w": floats(4, 3), "b": floats(3)}}),
    "gemm transposed": (MIXES, None, [op("Gemm", "x w", transA=1)], {"constants": {"w": floats(5, 3)}}),
    "einsum": (INDEPENDENT, 1, [op("Einsum", "x w", equation="bi,io->ob")], {"constants": {"w": floats(4, 3)}}),
    "einsum of pairs": (MIXES, None, [op("Einsum", "x z", equation="bi,ci->bc")], {"inputs": TWO}),
    "einsum that sums rows": (MIXES, None, [op("Einsum", "x", equation="bi->i")], {}),
    "convolution": (INDEPENDENT, 0, [op("Conv", "x w")], {"inputs": IMAGES, "constants": {"w": floats(2, 3, 3, 3)}}),
    "convolution over the batch": (
        MIXES,
        None,
        [op("Transpose", "x", "t", perm=[1, 2, 0]), op("Conv", "t w")],
        {"inputs": SEQUENCES, "constants": {"w": floats(2, 4, 3)}},
    ),
    "pooling": (INDEPENDENT, 0, [op("MaxPool", "x", kernel_shape=[2, 2])], {"inputs": IMAGES}),
    "global pooling": (
        INDEPENDENT,
        0,
        [op("GlobalAveragePool", "x", "p"), op("Reshape", "p s")],
        {"inputs": IMAGES, "constants": {"s": ints(-1, 3)}},
    ),
    "batch norm": (
        INDEPENDENT,
        0,
        [op("BatchNormalization", "x a a a a")],
        {"inputs": IMAGES, "constants": {"a": floats(3)}},
    ),
    "batch norm in training": (
        MIXES,
        None,
        [op("BatchNormalization", "x a a a a", "y m v", training_mode=1)],
        {"inputs": IMAGES, "constants": {"a": floats(3)}},
    ),
    "regions": (
        MIXES,
        None,
        [op("RoiAlign", "x r i")],
        {"inputs": {**IMAGES, "r": ["boxes", 4], "i": ["boxes"]}, "kinds": {"i": TensorProto.INT64}},
    ),
    # layers
    "recurrent, time first": (
        MIXES,
        None,
        [op("RNN", "x w r", hidden_size=2)],
        {"inputs": SEQUENCES, "constants": {"w": floats(1, 2, 4), "r": floats(1, 2, 2)}},
    ),
    "recurrent, batch first": (
        INDEPENDENT,
        0,
        [op("LSTM", "x w r", hidden_size=2, layout=1)],
        {"inputs": SEQUENCES, "constants": RNN},
    ),
    "recurrent, transposed": (
        INDEPENDENT,
        2,
        [op("Transpose", "x", "t", perm=[1, 0, 2]), op("LSTM", "t w r", hidden_size=2)],
        {"inputs": SEQUENCES, "constants": RNN},
    ),
    "attention": (
        INDEPENDENT,
        0,
        [op("Attention", "x x x", q_num_heads=2, kv_num_heads=2)],
        {"inputs": SEQUENCES, "opset": 23},
    ),
    "dropout": (INDEPENDENT, 0, [op("Dropout", "x")], {}),
    "dropout in training": (
        UNKNOWN,
        None,
        [op("Dropout", "x r t")],
        {"constants": {"r": np.float32(0.5), "t": np.True_}},
    ),
    "random numbers": (UNKNOWN, None, [op("RandomNormalLike", "x")], {}),
    # quantisation
    "static scale": (
        INDEPENDENT,
        0,
        [op("QuantizeLinear", "x s", "q"), op("DequantizeLinear", "q s")],
        {"constants": {"s": np.float32(0.1)}},
    ),
    "integers with a static scale": (
        INDEPENDENT,
        0,
        [op("QuantizeLinear", "x s", "q"), op("MatMulInteger", "q w")],
        {"constants": {"s": np.float32(0.1), "w": np.ones((4, 3), np.uint8)}, "kinds": {"y": TensorProto.INT32}},
    ),
    # ai.onnx.ml and com.microsoft
    "scaler": (INDEPENDENT, 0, [op("Scaler", "x", domain="ai.onnx.ml", scale=[2.0], offset=[1.0])], {}),
    "a table of one row": (UNKNOWN, None, [op("Normalizer", "x", domain="ai.onnx.ml")], {"inputs": {"x": [ROWS]}}),
    "fused matmul": (
        INDEPENDENT,
        0,
        [op("FusedMatMul", "x w", domain="com.microsoft", transB=1)],
        {"constants": {"w": floats(3, 4)}},
    ),
    "skip norm": (
        INDEPENDENT,
        0,
        [op("SkipLayerNormalization", "x x w", domain="com.microsoft")],
        {"inputs": SEQUENCES, "constants": {"w": floats(4)}},
    ),
    "an operator without a rule": (UNKNOWN, None, [op("Mystery", "x", domain="acme")], {}),
    "an opset of tomorrow": (UNKNOWN, None, [op("Relu", "x")], {"opset": 99}),
}


@pytest.mark.parametrize("name", CASES)
def test_an_operator_keeps_rows_apart_or_says_why_not(name, tmp_path) -> None:
    verdict, axis, nodes, arguments = CASES[name]
    names = list(arguments.get("inputs") or {"x": None})
    rows = {item: 0 for item in names if item != "a"}
    proof = prove(tmp_path, model(*nodes, **arguments), batch_axes={**rows, **({"a": None} if "a" in names else {})})
    assert (proof.verdict, proof.output_axes.get("y") if verdict == INDEPENDENT else None) == (verdict, axis), (
        proof.reason
    )
    assert (proof.reason is None) == (verdict == INDEPENDENT)


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        ([op("DynamicQuantizeLinear", "x", "q s z"), op("DequantizeLinear", "q s z")], {}),
        (
            [op("DynamicQuantizeMatMul", "x w s", domain="com.microsoft")],
            {"w": np.ones((4, 3), np.uint8), "s": np.float32([0.1])},
        ),
    ],
)
def test_dynamic_quantisation_mixes_rows_by_a_scale(nodes, constants, tmp_path) -> None:
    proof = prove(tmp_path, model(*nodes, constants=constants))
    assert (proof.verdict, proof.quantized) == ("mixes", True)
    assert "computes one scale from all rows" in proof.reason.why


def test_a_reason_names_operator_node_and_opset(tmp_path) -> None:
    proof = prove(tmp_path, model(op("Softmax", "x", axis=0, name="scores"), inputs={"x": [ROWS]}, opset=13))
    assert str(proof.reason) == ('Softmax (opset 13, node "scores") normalises along axis 0, which is the batch axis')


@pytest.mark.parametrize("operator", ["ReduceL1", "ReduceLogSum", "ReduceLogSumExp"])
@pytest.mark.parametrize(("opset", "verdict"), [(11, "independent"), (13, "mixes"), (17, "mixes")])
def test_the_rules_of_openvino_hold_for_openvino_only(operator, opset, verdict, tmp_path) -> None:
    built = model(op(operator, "x", axes=[1]), opset=opset)
    assert prove(tmp_path, built, engine="openvino").verdict == verdict
    assert prove(tmp_path, built, engine="onnx").verdict == "independent"


def test_openvino_ignores_the_layout_of_recurrent_layers(tmp_path) -> None:
    built = model(op("LSTM", "x w r", hidden_size=2, layout=1), inputs=SEQUENCES, constants=RNN)
    assert prove(tmp_path, built, engine="openvino").verdict == "mixes"

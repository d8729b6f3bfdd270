"""`hami quantize`: the model in 8 bits is close to the float one, its tail stays in float, and mistakes are named."""

from __future__ import annotations

import json

import hami
import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import save
from hami.cli import main
from onnx import TensorProto, helper

from hami_onnx.quantize import nodes_after_the_last_product
from hami_onnx.session import inference_session

PORT = (TensorProto.FLOAT, ["n", 3, 8, 8])


@pytest.fixture
def detector(tmp_path):
    """Two convolutions, then boxes 0 to 640 and scores 0 to 1 in one output, as a YOLO has."""
    return write(tmp_path / "detector.onnx")


def write(path, opset=17):
    random = np.random.default_rng(0)
    constants = {
        "w1": random.normal(0, 0.3, (8, 3, 3, 3)).astype(np.float32),
        "w2": random.normal(0, 0.3, (6, 8, 1, 1)).astype(np.float32),
        "640": np.float32(640),
    }
    if opset >= 13:
        split = helper.make_node("Split", ["maps", "sizes"], ["first", "second"], axis=1)
        constants["sizes"] = np.int64([4, 2])
    else:
        split = helper.make_node("Split", ["maps"], ["first", "second"], axis=1, split=[4, 2])
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["h"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Conv", ["r", "w2"], ["maps"]),
        split,
        helper.make_node("Mul", ["first", "640"], ["boxes"]),
        helper.make_node("Sigmoid", ["second"], ["scores"]),
        helper.make_node("Concat", ["boxes", "scores"], ["y"], axis=1),
    ]
    return save(path, nodes, {"x": PORT}, {"y": (TensorProto.FLOAT, ["n", 6, 8, 8])}, constants, opset=opset)


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    random = np.random.default_rng(1)
    for i in range(10):
        np.save(folder / f"{i}.npy", random.random((1, 3, 8, 8), np.float32))
    return folder


def outputs(model, sample):
    with hami.pipe({"backend": "OnnxTensor", "model": str(model)}) as pipe:
        return np.asarray(pipe({"data": sample})["result"])


def test_scores_beside_boxes_stay_close_and_the_table_says_how_close(detector, data, capsys):
    assert main(["quantize", str(detector), "--data", str(data), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    made = detector.with_name("detector.int8.onnx")
    assert (found["output"], found["quantized"], found["calibrated"], found["compared"]) == (str(made), 2, 8, 2)
    sample = np.load(data / "0.npy")
    before, after = outputs(detector, sample), outputs(made, sample)
    assert np.abs(after[:, 4:] - before[:, 4:]).max() < 0.05
    assert after[:, 4:].std() > 0.02
    row = found["outputs"]["y"]
    assert row["largest value"] > 100
    assert row["largest difference"] / row["largest value"] < 0.05
    assert row["cosine"] > 0.999
    graph = onnx.load(made).graph
    assert sum(node.op_type == "QuantizeLinear" for node in graph.node) >= 2
    before_sigmoid = next(node for node in graph.node if node.op_type == "Concat")
    assert not any("Quantize" in name for name in before_sigmoid.input)


def test_the_table_is_printed_and_requests_are_still_joined(detector, data, capsys):
    made = detector.with_name("small.onnx")
    assert main(["quantize", str(detector), "--data", str(data), "--output", str(made)]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    first, header, row = printed.out.splitlines()
    assert first.endswith("2 nodes in 8 bits; 8 samples calibrated it, 2 compared")
    assert header.split()[:3] == ["output", "largest", "value"]
    assert row.split()[0] == "y"
    assert main(["show", str(made), "--json"]) == 0
    (facts,) = [facts for name, facts in json.loads(capsys.readouterr().out).items() if name.startswith("hami-onnx ")]
    assert facts["requests"] == "joined"


def test_an_older_opset_is_converted(tmp_path, data):
    model = write(tmp_path / "old.onnx", opset=11)
    assert main(["quantize", str(model), "--data", str(data)]) == 0
    assert onnx.load(tmp_path / "old.int8.onnx").opset_import[0].version >= 13


@pytest.mark.parametrize(
    ("operator", "opset", "scale", "mode"),
    [
        *(("Upsample", 9, 2, mode) for mode in ("linear", "nearest")),
        *(("Resize", 10, scale, mode) for scale in (2, 1.5, 0.25, 1 / 3) for mode in ("linear", "nearest")),
    ],
)
def test_pixels_stay_where_they_were_before_the_conversion(tmp_path, data, operator, opset, scale, mode):
    constants = {
        "w": np.random.default_rng(0).normal(0, 0.3, (4, 3, 3, 3)).astype(np.float32),
        "scales": np.float32([1, 1, scale, scale]),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["maps"]),
        helper.make_node(operator, ["maps", "scales"], ["y"], mode=mode),
    ]
    model = save(tmp_path / "old.onnx", nodes, {"x": PORT}, {"y": (TensorProto.FLOAT, None)}, constants, opset=opset)
    assert main(["quantize", str(model), "--data", str(data), "--output", str(tmp_path / "int8.onnx")]) == 0
    sample = np.load(data / "0.npy")
    expected = outputs(model, sample)
    assert np.abs(outputs(tmp_path / "int8.onnx", sample) - expected).max() < 0.02 * np.abs(expected).max()


def test_an_operator_with_another_meaning_in_newer_opsets_is_refused(tmp_path, data, capsys):
    constants = {"w": np.ones((4, 3, 1, 1), np.float32)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["maps"]), helper.make_node("Hardmax", ["maps"], ["y"])]
    model = save(tmp_path / "old.onnx", nodes, {"x": PORT}, {"y": (TensorProto.FLOAT, None)}, constants, opset=11)
    assert main(["quantize", str(model), "--data", str(data)]) == 1
    assert "the model has Hardmax of opset 11, which means another operator from opset 13 on" in capsys.readouterr().err


def quantized_convolution(path, tail, opset):
    """A convolution between int8 values, and a tail in float that moves values only."""
    constants = {
        "scale": np.float32(0.01),
        "zero": np.int8(0),
        "w": np.random.default_rng(0).integers(-9, 9, (6, 3, 1, 1)).astype(np.int8),
        "sizes": np.int64([0, -1]),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "scale", "zero"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "scale", "zero"], ["wf"]),
        helper.make_node("Conv", ["xf", "wf"], ["maps"]),
        helper.make_node("QuantizeLinear", ["maps", "scale", "zero"], ["mq"]),
        helper.make_node("DequantizeLinear", ["mq", "scale", "zero"], ["mf"]),
        tail,
    ]
    return save(path, nodes, {"x": PORT}, {"y": (TensorProto.FLOAT, None)}, constants, opset=opset)


@pytest.mark.parametrize("opset", [19, 21, 23])
@pytest.mark.parametrize(
    "tail",
    [
        helper.make_node("Transpose", ["mf"], ["y"], perm=[0, 2, 3, 1]),
        helper.make_node("Reshape", ["mf", "sizes"], ["y"]),
        helper.make_node("MaxPool", ["mf"], ["y"], kernel_shape=[2, 2]),
    ],
    ids=lambda node: node.op_type,
)
def test_a_model_in_int8_runs_with_a_tail_in_float(tmp_path, tail, opset):
    model = quantized_convolution(tmp_path / "int8.onnx", tail, opset)
    sample = np.random.default_rng(2).random((1, 3, 8, 8), np.float32)
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    expected = onnxruntime.InferenceSession(str(model), plain, providers=["CPUExecutionProvider"])
    expected = expected.run(None, {"x": sample})[0]
    np.testing.assert_allclose(outputs(model, sample), expected, atol=0.0101)  # one step of the scale
    in_python = inference_session(str(model), onnxruntime.SessionOptions(), ["CPUExecutionProvider"])
    np.testing.assert_allclose(in_python.run(None, {"x": sample})[0], expected, atol=0.0101)


def test_a_detector_of_opset_21_whose_tail_transposes_is_quantized(tmp_path, data, capsys):
    # Small ones: on processors without VNNI, sums of large products in 8 bits end at the largest value of 16 bits.
    weights = np.random.default_rng(0).normal(0, 0.1, (6, 3, 1, 1)).astype(np.float32)
    weights[0, 0] = 0.6
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["maps"]),
        helper.make_node("Transpose", ["maps"], ["y"], perm=[0, 2, 3, 1]),
    ]
    model = save(
        tmp_path / "detector.onnx", nodes, {"x": PORT}, {"y": (TensorProto.FLOAT, None)}, {"w": weights}, opset=21
    )
    assert main(["quantize", str(model), "--data", str(data), "--output", str(tmp_path / "int8.onnx"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outputs"]["y"]["cosine"] > 0.99
    sample = np.load(data / "0.npy")
    difference = np.abs(outputs(tmp_path / "int8.onnx", sample) - outputs(model, sample))
    assert difference.max() < 0.05


def test_dynamic_scales_are_warned_of(tmp_path, data, capsys):
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Conv", ["d", "w"], ["y"]),
    ]
    constants = {"w": np.ones((2, 3, 1, 1), np.float32)}
    model = save(tmp_path / "m.onnx", nodes, {"x": PORT}, {"y": (TensorProto.FLOAT, ["n", 2, 8, 8])}, constants)
    assert main(["quantize", str(model), "--data", str(data)]) == 0
    assert (
        "warning: the model has DynamicQuantizeLinear, whose scale is that of the whole batch"
        in capsys.readouterr().err
    )


def test_the_tail_is_what_leads_to_no_product(detector):
    graph = onnx.load(detector).graph
    for node in graph.node:
        node.name = node.output[0]
    assert nodes_after_the_last_product(graph) == {"first", "boxes", "scores", "y"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["none.onnx", "--data", "data"], "none.onnx cannot be read as an ONNX model"),
        (["detector.onnx", "--data", "none"], "none is not a folder with .npy or .npz files"),
        (["detector.onnx", "--data", "data", "--output", "detector.onnx"], "--output is the model itself"),
        (["detector.onnx", "--data", "wrong"], "has a, and the model takes x"),
        (["detector.onnx", "--data", "broken"], "broken/a.npz cannot be read"),
        (["double.onnx", "--data", "data"], "has no convolution or product"),
        (
            ["detector.onnx", "--data", "shape"],
            "shape/a.npy has float32 [1, 2] for x, and the model takes float32 [?, 3",
        ),
        (
            ["detector.onnx", "--data", "double"],
            "double/a.npy has float64 [1, 3, 8, 8] for x, and the model takes float",
        ),
    ],
)
def test_a_mistake_says_what_to_do(detector, data, models, capsys, monkeypatch, given, message):
    monkeypatch.chdir(detector.parent)
    models.double()
    for folder in ("wrong", "broken", "shape", "double"):
        (detector.parent / folder).mkdir()
    np.savez("wrong/a.npz", a=np.zeros(1))
    (detector.parent / "broken" / "a.npz").write_bytes(b"no array")
    np.save("shape/a.npy", np.zeros((1, 2), np.float32))
    np.save("double/a.npy", np.zeros((1, 3, 8, 8)))
    assert main(["quantize", *given]) == 1
    assert message in capsys.readouterr().err
    assert not list(detector.parent.glob("*.int8.onnx"))


def test_an_output_whose_shape_depends_on_values_is_named_and_not_compared(tmp_path, data, capsys):
    """As the boxes of a model that has NonMaxSuppression: 8 bits find another number of them."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"]),
        helper.make_node("Greater", ["y", "limit"], ["above"]),
        helper.make_node("NonZero", ["above"], ["found"]),
    ]
    random = np.random.default_rng(2)
    constants = {"w": random.normal(0, 0.3, (8, 3, 3, 3)).astype(np.float32), "limit": np.float32(0)}
    ports = {"y": (TensorProto.FLOAT, ["n", 8, 6, 6]), "found": (TensorProto.INT64, [4, "k"])}
    model = save(tmp_path / "m.onnx", nodes, {"x": PORT}, ports, constants)
    assert main(["quantize", str(model), "--data", str(data), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["outputs"]) == ["y"]
    assert found["warnings"] == [
        'output "found" is not compared: it is not numbers, or its shape depends on values and differs'
    ]


def test_the_size_of_a_model_has_the_weights_beside_it(detector, data, capsys):
    onnx.save(onnx.load(detector), detector, save_as_external_data=True, location="weights.bin", size_threshold=100)
    assert main(["quantize", str(detector), "--data", str(data), "--json"]) == 0
    both = sum((detector.parent / each).stat().st_size for each in ("detector.onnx", "weights.bin"))
    assert json.loads(capsys.readouterr().out)["bytes before"] == both

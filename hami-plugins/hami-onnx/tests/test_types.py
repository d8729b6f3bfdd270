"""What models take in addition to plain arrays: bfloat16, optional inputs, sequences, empty axes, custom operators."""

from __future__ import annotations

import hami
import ml_dtypes
import numpy as np
import onnx
import pytest
from conftest import save
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def write(path, nodes, inputs, outputs, constants=None, opset=18):
    """Write a model whose inputs and outputs are ValueInfoProto."""
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()]
    graph = helper.make_graph(nodes, "test", inputs, outputs, initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path)
    return str(path)


@pytest.mark.parametrize(
    ("kind", "dtype"), [("BFLOAT16", ml_dtypes.bfloat16), ("FLOAT8E4M3FN", ml_dtypes.float8_e4m3fn)]
)
def test_small_floats_go_in_and_come_out_as_arrays_of_ml_dtypes(pipe, models, kind, dtype):
    port = (getattr(TensorProto, kind), ["n", 2])
    path = save(
        models.double().parent / "small.onnx",
        [helper.make_node("Identity", ["x"], ["y"])],
        {"x": port},
        {"y": port},
        opset=19,
    )
    running = pipe(model=str(path), batched=True, max=4)
    requests = [{"data": np.array([[i, i / 2]], dtype)} for i in range(4)]
    requests.append({"data": np.zeros((0, 2), dtype)})
    running(requests)
    assert all(request["result"].dtype == dtype for request in requests)
    assert [request["result"].astype(float).tolist() for request in requests] == [[[i, i / 2]] for i in range(4)] + [[]]


def test_float32_is_not_rounded_to_bfloat16_where_cast_is_safe(pipe, tmp_path):
    port = (TensorProto.BFLOAT16, ["n"])
    path = save(tmp_path / "b.onnx", [helper.make_node("Identity", ["x"], ["y"])], {"x": port}, {"y": port})
    with pytest.raises(hami.DataTypeError) as error:
        pipe(model=str(path), cast="safe")({"data": np.float32([1.1])})
    assert (
        str(error.value)
        .splitlines()[0]
        .startswith('OnnxTensor: input "x" expects bfloat16, got float32, which cannot be converted without loss')
    )
    assert pipe(model=str(path))({"data": [1.1]})["result"].astype(float).tolist() == [1.1015625]


def test_big_endian_arrays_are_converted(pipe, models):
    result = pipe(model=str(models.double()))({"data": np.array([[1, 2]], ">f4")})["result"]
    assert (result.dtype, result.tolist()) == (np.dtype("float32"), [[2, 4]])


def test_an_optional_input_may_be_left_out(pipe, tmp_path):
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, ["n"]))
    path = write(
        tmp_path / "optional.onnx",
        [helper.make_node("OptionalHasElement", ["x"], ["y"])],
        [helper.make_value_info("x", kind)],
        [helper.make_tensor_value_info("y", TensorProto.BOOL, [])],
    )
    running = pipe(model=path)
    requests = [{"data": {}}, {"data": {"x": np.float32([1])}}, {"data": {"x": None}}]
    running(requests)
    assert [bool(request["result"]) for request in requests] == [False, True, False]


def test_an_initializer_that_is_an_input_may_be_given(pipe, tmp_path):
    path = write(
        tmp_path / "bias.onnx",
        [helper.make_node("Add", ["x", "bias"], ["y"])],
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in (("x", ["n", 2]), ("bias", [2]))],
        [helper.make_tensor_value_info("y", FLOAT, ["n", 2])],
        {"bias": np.float32([10, 10])},
    )
    running = pipe(model=path)
    x = np.float32([[1, 2]])
    requests = [{"data": x}, {"data": {"x": x}}, {"data": {"x": x, "bias": np.float32([0, 5])}}, {"data": [x]}]
    running(requests)
    assert [request["result"].tolist() for request in requests] == [[[11, 12]], [[11, 12]], [[1, 7]], [[11, 12]]]
    with pytest.raises(hami.RequestError) as error:
        running({"data": {"bias": x}})
    assert "has the inputs ['x'] and may have ['bias'], got a dict with the keys ['bias']" in str(error.value)


def test_a_sequence_is_a_list_of_arrays(pipe, tmp_path):
    path = write(
        tmp_path / "join.onnx",
        [helper.make_node("ConcatFromSequence", ["parts"], ["whole"], axis=0)],
        [helper.make_tensor_sequence_value_info("parts", FLOAT, None)],
        [helper.make_tensor_value_info("whole", FLOAT, None)],
    )
    running = pipe(model=path)
    parts = [np.float32([1, 2]), np.float32([3])]
    for data in (parts, tuple(parts), [parts], {"parts": parts}):
        assert running({"data": data})["result"].tolist() == [1, 2, 3]
    assert running({"data": [np.float32([4])]})["result"].tolist() == [4]
    with pytest.raises(hami.DataTypeError, match='input "parts" must be a list of arrays'):
        running({"data": np.float32([1])})


def test_an_axis_of_length_0_is_an_axis(pipe, tmp_path):
    port = (FLOAT, [0, 2])
    path = save(tmp_path / "empty.onnx", [helper.make_node("Relu", ["x"], ["y"])], {"x": port}, {"y": port})
    assert pipe(model=str(path))({"data": np.zeros((0, 2), np.float32)})["result"].shape == (0, 2)


def test_libraries_of_operators_must_be_allowed_and_valid(models, tmp_path):
    library = tmp_path / "operators.so"
    library.write_bytes(b"\x7fELF")
    config = {"backend": "OnnxTensor", "model": str(models.double()), "custom_operators": [str(library)]}
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe(config)
    assert '"custom_operators" of OnnxTensor' in str(error.value)
    assert "HAMI_ALLOWED_LIBRARIES" in str(error.value)
    hami.native.allow_library(str(library))
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe(config)
    assert "is not a library of operators for onnxruntime" in str(error.value)


def test_a_model_with_operators_of_a_library_runs(pipe, tmp_path):
    extensions = pytest.importorskip("onnxruntime_extensions", reason="needs a library of operators for onnxruntime")
    library = extensions.get_library_path()
    node = helper.make_node("StringUpper", ["x"], ["y"], domain="ai.onnx.contrib")
    port = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "test", [port("x", TensorProto.STRING, ["n"])], [port("y", TensorProto.STRING, ["n"])]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.contrib", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "upper.onnx")
    hami.native.allow_library(library)
    running = pipe(model=str(tmp_path / "upper.onnx"), custom_operators=[library])
    requests = [{"data": np.array([word])} for word in ("a", "bc")]
    running(requests)
    assert [request["result"].tolist() for request in requests] == [["A"], ["BC"]]
    assert running.stats()["default"].counters["groups"] == 1  # a test showed that rows are independent

#!/bin/bash
# OpenVINO 2026.4.1 (CPU) computes two ONNX operators in ways that a good engineer would not expect, without an error:
#  * Div of int8 truncates, as ONNX says, if the shape is static, and rounds to the nearest integer if an axis is dynamic;
#  * DFT of opset 20 transforms axis 1; it ignores the axis input and the default, -2.
# Exits with 0 if both behaviours are seen.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q openvino==2026.4.1 onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import numpy as np
import onnxruntime
import openvino
from onnx import TensorProto, helper

core = openvino.Core()


def both(node, kind, shape, data, opset):
    value = lambda name: helper.make_tensor_value_info(name, kind, shape)
    graph = helper.make_graph([node], "g", [value(name) for name in data], [value("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    own = np.array(compiled(data)[0])
    return own, onnxruntime.InferenceSession(model.SerializeToString()).run(None, data)[0]


print("openvino", openvino.get_version(), "onnxruntime", onnxruntime.__version__)
numbers = {"a": np.int8([7, -7, 5, 9]), "b": np.int8([2, 2, 3, 4])}
div = helper.make_node("Div", ["a", "b"], ["y"])
static, expected = both(div, TensorProto.INT8, [4], numbers, 14)
dynamic, _ = both(div, TensorProto.INT8, ["n"], numbers, 14)
print("int8 Div: ONNX Runtime", expected, "OpenVINO static", static, "dynamic", dynamic)
seen = np.array_equal(static, expected) and not np.array_equal(dynamic, expected)

signal = np.random.default_rng(0).standard_normal((2, 8, 6, 2)).astype(np.float32)
own, expected = both(helper.make_node("DFT", ["x"], ["y"]), TensorProto.FLOAT, [2, 8, 6, 2], {"x": signal}, 20)
along = lambda axis: np.fft.fft(signal[..., 0] + 1j * signal[..., 1], axis=axis)
complex_of = lambda array: array[..., 0] + 1j * array[..., 1]
print("DFT: ONNX Runtime transforms axis 2:", np.allclose(complex_of(expected), along(2), atol=1e-4))
print("DFT: OpenVINO transforms axis 1:", np.allclose(complex_of(own), along(1), atol=1e-4))
seen = seen and np.allclose(complex_of(expected), along(2), atol=1e-4) and np.allclose(complex_of(own), along(1), atol=1e-4)
sys.exit(0 if seen else 1)
PYTHON

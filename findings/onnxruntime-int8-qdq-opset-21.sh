#!/usr/bin/env bash
# onnxruntime 1.32.0, x86-64: its quantizer writes int8 models of opset 21 that its default optimization refuses to load.
#
# If a convolution is quantized and the Transpose, Reshape or MaxPool behind it is not, loading moves the quantization behind
# that operator. A later step, which only x86-64 has, makes it uint8, but leaves the attribute output_dtype, which opset 21
# added, at INT8: "output_dtype INT8 does not match y_zero_point type UINT8". The file is valid: it loads without the extended
# optimizations, and without QDQPropagationTransformer alone. At opset 20, and with uint8 activations, it loads as it is.
# Seen on 30 November 2026, CPython 3.11, on a processor with AVX-512 VNNI. Fails if this changes.
set -euo pipefail
[ "$(uname -m)" = x86_64 ] || { echo "this is about x86-64"; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check onnxruntime==1.32.0 onnx==1.21.0 numpy==2.2.6 sympy==1.14.0
cd "$work"
"$work/env/bin/python" - <<'PY'
import logging

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

logging.disable(logging.WARNING)  # advice about preprocessing
ort.set_default_logger_severity(3)
print("onnxruntime", ort.__version__, "onnx", onnx.__version__)
random = np.random.default_rng(0)


class Samples(CalibrationDataReader):
    def __init__(self):
        self.left = iter([{"x": random.normal(size=(1, 2, 8, 8)).astype(np.float32)} for _ in range(4)])

    def get_next(self):
        return next(self.left, None)


def write(opset, tail):
    constants = {"w": random.normal(size=(4, 2, 3, 3)).astype(np.float32), "sizes": np.int64([0, -1])}
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["c"], name="conv"), tail],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), "float.onnx")


def loads(level=None, without=None):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    if level is not None:
        options.graph_optimization_level = level
    if without:
        options.add_session_config_entry("optimization.disable_specified_optimizers", without)
    try:
        ort.InferenceSession("quantized.onnx", options, providers=["CPUExecutionProvider"])
    except Exception as error:
        return str(error).splitlines()[0].rpartition("] ")[2]
    return "loads"


TAILS = {
    "Transpose": helper.make_node("Transpose", ["c"], ["y"], perm=[0, 2, 3, 1], name="tail"),
    "Reshape": helper.make_node("Reshape", ["c", "sizes"], ["y"], name="tail"),
    "MaxPool": helper.make_node("MaxPool", ["c"], ["y"], kernel_shape=[2, 2], name="tail"),
    "Softmax": helper.make_node("Softmax", ["c"], ["y"], name="tail"),
}
for opset in (20, 21):
    for name, tail in TAILS.items():
        for kind in (QuantType.QInt8, QuantType.QUInt8):
            write(opset, tail)
            quantize_static("float.onnx", "quantized.onnx", Samples(), activation_type=kind, op_types_to_quantize=["Conv"])
            onnx.checker.check_model("quantized.onnx", full_check=True)
            found = loads()
            is_refused = opset == 21 and kind == QuantType.QInt8 and name != "Softmax"
            print(f"opset {opset}, {kind}, {name}: {found}")
            expected = "output_dtype INT8 does not match y_zero_point type UINT8." if is_refused else "loads"
            assert found == expected
            assert loads(level=ort.GraphOptimizationLevel.ORT_ENABLE_BASIC) == "loads"
            assert loads(without="QDQPropagationTransformer") == "loads"
PY

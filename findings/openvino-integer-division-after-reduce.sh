#!/usr/bin/env bash
# OpenVINO 2026.4.1 (CPU): behind a reduction, an integer division by a constant rounds to the nearest, and one of a constant is inverted.
#
# ReduceSum, ReduceMax and the others of int32 and int64 take a Div that follows them into their own kernel, which computes it in
# float32. 41 / 3 becomes 14, where ONNX, and OpenVINO without the reduction, give 13. If the constant is the dividend, the operands are
# exchanged: 100 / 41 becomes 41 / 100, rounded to 0. Squeeze, Transpose, Add or Neg between the two do not prevent it. Float divisions
# are right.
# Seen on 30 November 2026, x86-64, CPython 3.11. Fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check openvino==2026.4.1 onnxruntime==1.32.0 onnx==1.21.0 numpy==2.2.6
"$work/env/bin/python" - <<'PY'
import numpy as np
import onnx
import onnxruntime as ort
import openvino as ov
from onnx import TensorProto, helper, numpy_helper

ort.set_default_logger_severity(3)
print("openvino", ov.__version__.partition("-")[0], "onnxruntime", ort.__version__)
DATA = np.array([[3, 7, 11, 2], [41, 5, 2, 4]])


def results(dtype, reduction, operands, constant):
    """Reduce each row to m, then divide; c is the constant."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [helper.make_node("Div", operands, ["y"])]
    if reduction:
        nodes.insert(0, helper.make_node(reduction, ["x", "axes"], ["m"], keepdims=1))
    name, shape = ("x", ["n", 4]) if reduction else ("m", ["n", 1])
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(np.int64([1]), "axes"), numpy_helper.from_array(np.array(constant, dtype), "c")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    data = DATA.astype(dtype) if reduction else DATA.astype(dtype).max(1, keepdims=True)
    core = ov.Core()
    yield core.compile_model(core.read_model(model), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([data])[0].ravel()
    yield ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {name: data})[0].ravel()


for dtype in (np.int32, np.int64):
    for reduction in ("ReduceMax", "ReduceSum", None):
        for operands, constant in ((["m", "c"], 3), (["c", "m"], 100)):
            found, exact = results(dtype, reduction, operands, constant)
            text = " / ".join(str(constant) if each == "c" else reduction or "input" for each in operands)
            print(f"{dtype.__name__} {text}: OpenVINO {found.tolist()}, ONNX Runtime {exact.tolist()}")
            assert np.array_equal(found, exact) == (reduction is None)
            if reduction == "ReduceMax":
                assert found.tolist() == ([4, 14] if operands[0] == "m" else [0, 0])
                assert exact.tolist() == ([3, 13] if operands[0] == "m" else [9, 2])
found, exact = results(np.float32, "ReduceMax", ["c", "m"], 100)
assert np.allclose(found, exact)
PY

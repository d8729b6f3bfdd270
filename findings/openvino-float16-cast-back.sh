#!/usr/bin/env bash
# OpenVINO 2026.4.1 (CPU) removes a Cast to float16 that is cast back to float32: nothing is rounded, and nothing overflows.
#
# A model that rounds to float16 on purpose, to simulate it or to clip at its range, gets its float32 values back: 70000 stays
# 70000, where ONNX defines infinity, and 0.1 keeps all its digits. A Cast to float16 that is an output rounds and overflows as it
# should. ONNX Runtime does what the model says in both cases.
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
from onnx import TensorProto, helper

print("openvino", ov.__version__.partition("-")[0], "onnxruntime", ort.__version__)


def results(kinds):
    """Cast through these types, one after the other."""
    names = ["x", *(f"v{i}" for i in range(1, len(kinds))), "y"]
    nodes = [helper.make_node("Cast", [name], [after], to=kind) for name, after, kind in zip(names, names[1:], kinds)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None])
    graph = helper.make_graph(nodes, "g", [x], [helper.make_tensor_value_info("y", kinds[-1], [None])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    core = ov.Core()
    properties = {"INFERENCE_PRECISION_HINT": "f32"}
    yield core.compile_model(core.read_model(model), "CPU", properties)([values])[0]
    yield ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": values})[0]


values = np.array([70_000, -1e6, 0.1, 1e-8], np.float32)
with np.errstate(over="ignore"):
    rounded = values.astype(np.float16)
there_and_back, exact = results([TensorProto.FLOAT16, TensorProto.FLOAT])
print("float32 to float16 to float32: OpenVINO", there_and_back.tolist(), "ONNX Runtime", exact.tolist())
assert np.array_equal(there_and_back, values)
assert np.array_equal(exact, rounded.astype(np.float32))
there, exact = results([TensorProto.FLOAT16])
print("float32 to float16: OpenVINO", there.tolist(), "ONNX Runtime", exact.tolist())
assert np.array_equal(there, rounded)
assert np.array_equal(exact, rounded)
PY

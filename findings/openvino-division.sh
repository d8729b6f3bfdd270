#!/usr/bin/env bash
# OpenVINO 2026.4.1 (CPU) divides by multiplying with the reciprocal, and divides 32-bit and 64-bit integers as float32.
#
# Div of float32 is x * (1 / y), rounded twice: 41 / 41 is 0.99999994, and Floor or Cast of it gives 0. Of 200,000 quotients of
# exact multiples, more than 2 % have another floor. INFERENCE_PRECISION_HINT = f32 and EXECUTION_MODE_HINT = ACCURACY do not
# change it. Div of int32 and int64 is right up to 16,777,216; 16,777,217 / 1 is 16,777,216. ONNX Runtime returns the exact values.
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


def model(kind, *nodes):
    ports = [helper.make_tensor_value_info(name, kind, [None]) for name in "ab"]
    result = helper.make_tensor_value_info("y", kind, [None])
    graph = helper.make_graph(list(nodes), "g", ports, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


def by_openvino(data, a, b, **properties):
    core = ov.Core()
    return core.compile_model(core.read_model(data), "CPU", properties)([a, b])[0]


def by_onnxruntime(data, a, b):
    return ort.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"a": a, "b": b})[0]


divide = helper.make_node("Div", ["a", "b"], ["y"])
floor = model(TensorProto.FLOAT, helper.make_node("Div", ["a", "b"], ["d"]), helper.make_node("Floor", ["d"], ["y"]))
quotient, divisor = (each.ravel() for each in np.meshgrid(np.arange(1, 2001), np.arange(1, 101)))
a, b = (quotient * divisor).astype(np.float32), divisor.astype(np.float32)
assert np.array_equal(by_onnxruntime(floor, a, b), quotient)
for properties in ({"INFERENCE_PRECISION_HINT": "f32"}, {"EXECUTION_MODE_HINT": "ACCURACY"}):
    found = by_openvino(floor, a, b, **properties)
    wrong = np.flatnonzero(found != quotient)
    first = wrong[0]
    print(f"{properties}: {len(wrong)} of {len(a)} floors differ; floor({a[first]} / {b[first]}) is {found[first]}")
    assert len(wrong) > 4000
plain = by_openvino(model(TensorProto.FLOAT, divide), a, b, INFERENCE_PRECISION_HINT="f32")
assert np.array_equal(plain, a * (np.float32(1) / b))

for kind, dtype in ((TensorProto.INT32, np.int32), (TensorProto.INT64, np.int64)):
    a, b = np.array([16_777_216, 16_777_217, 123_456_789], dtype), np.array([1, 1, 7], dtype)
    found, exact = by_openvino(model(kind, divide), a, b), by_onnxruntime(model(kind, divide), a, b)
    print(f"{dtype.__name__}: {a.tolist()} / {b.tolist()}: OpenVINO {found.tolist()}, ONNX Runtime {exact.tolist()}")
    assert np.array_equal(exact, a // b)
    assert found[0] == exact[0]
    assert found[1] != exact[1]
PY

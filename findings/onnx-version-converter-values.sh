#!/usr/bin/env bash
# onnx 1.23.2, version_converter: Upsample and Resize of opset 10 and older, and Hardmax, compute other values afterwards.
#
# Until opset 10, pixels began at the corner ("asymmetric", as a later version of Resize calls it). The converter writes a Resize
# without coordinate_transformation_mode, whose default is half_pixel: each pixel between others moves, and a nearest Resize to a
# quarter takes other pixels. Enlarging the nearest pixels is the same. Until opset 12, Hardmax
# looked at all axes from `axis` on; the converter, which rewrites Softmax and LogSoftmax for that, leaves Hardmax as it is. No
# error is raised, and onnx.checker accepts the results. ONNX Runtime runs both files.
# Seen on 30 November 2026, CPython 3.11. Fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check onnx==1.23.2 onnxruntime==1.32.0 numpy==2.2.6
"$work/env/bin/python" - <<'PY'
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper, version_converter

print("onnx", onnx.__version__, "onnxruntime", ort.__version__)
ort.set_default_logger_severity(3)


def before_and_after(operator, opset, data, constants=(), **attributes):
    inputs = ["x", *(name for name, _ in constants)]
    graph = helper.make_graph(
        [helper.make_node(operator, inputs, ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, data.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants],
    )
    old = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    new = version_converter.convert_version(old, 13)
    onnx.checker.check_model(new)
    for model in (old, new):
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        yield session.run(None, {"x": data})[0]


row = np.float32([[[[0, 10, 20, 30]]]])
double = [("scales", np.float32([1, 1, 1, 2]))]
for operator, opset in (("Upsample", 9), ("Resize", 10)):
    old, new = before_and_after(operator, opset, row, double, mode="linear")
    print(f"{operator} of opset {opset}: {old.ravel().tolist()}; in opset 13: {new.ravel().tolist()}")
    assert old.ravel().tolist() == [0, 5, 10, 15, 20, 25, 30, 30]
    assert new.ravel().tolist() == [0, 2.5, 7.5, 12.5, 17.5, 22.5, 27.5, 30]
    old, new = before_and_after(operator, opset, row, double, mode="nearest")
    assert np.array_equal(old, new)

quarter = [("scales", np.float32([1, 1, 1, 0.25]))]
old, new = before_and_after("Resize", 10, np.arange(12, dtype=np.float32).reshape(1, 1, 1, 12), quarter, mode="nearest")
print(f"nearest Resize of opset 10 to a quarter: {old.ravel().tolist()}; in opset 13: {new.ravel().tolist()}")
assert old.ravel().tolist() == [0, 4, 8]
assert new.ravel().tolist() == [1, 5, 9]

cube = np.float32([[[1, 2], [4, 3]]])
for operator in ("Hardmax", "Softmax", "LogSoftmax"):
    old, new = before_and_after(operator, 11, cube)
    print(f"{operator} of opset 11: {old.ravel().round(2).tolist()}; in opset 13: {new.ravel().round(2).tolist()}")
    assert np.allclose(old, new) == (operator != "Hardmax")
PY

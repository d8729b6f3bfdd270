#!/usr/bin/env bash
# onnxoptimizer 0.4.2: of two Reshape nodes in a row, the first is dropped, also where the second copies sizes from it.
#
# A 0 in the shape of Reshape stands for the size that its input has there. The pass eliminate_consecutive_idempotent_ops, which is
# one of the default passes, takes the second Reshape as if it did not depend on the shape of the first. The result has another
# shape, or, inside a GroupNormalization that was replaced by its function body, other values: it reshapes to
# (N, groups, channels / group, ...), then to (0, 0, -1), and is normalised over each channel instead of each group afterwards.
# onnx.checker accepts the result and no error is raised.
# Seen on 30 November 2026, CPython 3.11. Fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check onnxoptimizer==0.4.2 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.2.6
"$work/env/bin/python" - <<'PY'
import numpy as np
import onnx
import onnx.inliner
import onnxoptimizer
import onnxruntime as ort
from onnx import parser

print("onnxoptimizer", onnxoptimizer.version.version, "onnx", onnx.__version__, "onnxruntime", ort.__version__)
ort.set_default_logger_severity(3)
PASS = "eliminate_consecutive_idempotent_ops"
assert PASS in onnxoptimizer.get_fuse_and_elimination_passes()


def run(model, data, **more):
    onnx.checker.check_model(model)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": data, **more})[0]


two = parser.parse_model("""
<ir_version: 10, opset_import: ["": 21]>
g (float[2, 6] x) => (float[a, b] y)
<int64[2] first = {3, 4}, int64[2] second = {0, -1}> {
  h = Reshape (x, first)
  y = Reshape (h, second)
}""")
x = np.arange(12, dtype=np.float32).reshape(2, 6)
before = run(two, x)
for passes in ([PASS], None):
    after = run(onnxoptimizer.optimize(two, passes), x)
    print(f"Reshape to (3, 4), then to (0, -1), passes {passes or 'by default'}: {before.shape}; optimized {after.shape}")
    assert before.shape == (3, 4) and after.shape == (2, 6)

norm = parser.parse_model("""
<ir_version: 10, opset_import: ["": 21]>
g (float[1, 4, 2] x, float[4] scale, float[4] bias) => (float[1, 4, 2] y) {
  y = GroupNormalization <num_groups = 2> (x, scale, bias)
}""")
inlined = onnx.inliner.inline_selected_functions(norm, [("", "GroupNormalization")], inline_schema_functions=True)
x = np.arange(8, dtype=np.float32).reshape(1, 4, 2)
weights = {"scale": np.ones(4, np.float32), "bias": np.zeros(4, np.float32)}
before = run(norm, x, **weights)
assert np.allclose(before, run(inlined, x, **weights), atol=1e-4)
after = run(onnxoptimizer.optimize(inlined, [PASS]), x, **weights)
print(f"GroupNormalization of 0 to 7: {before.round(2).ravel()}; optimized {after.round(2).ravel()}")
assert np.allclose(before.ravel(), [-1.34, -0.45, 0.45, 1.34] * 2, atol=0.01)
assert not np.allclose(before, after, atol=0.1)
PY

#!/bin/bash
# The reference evaluator of onnx 1.23.2 ignores the input sequence_lens and the attribute clip of LSTM and GRU, without
# an error: with sequence_lens it also runs over the padding of shorter rows. ONNX Runtime 1.32.0 follows both. A row of
# two steps alone decides about sequence_lens; that a clip of 0.001 changes nothing shows that it is not applied.
# Exits with 0 if this is seen.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
cat >"$folder/recurrent.py" <<'PYTHON'
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

STEPS, ROWS, INPUT, HIDDEN = 4, 2, 5, 6
random = np.random.default_rng(0)
x = random.standard_normal((STEPS, ROWS, INPUT)).astype(np.float32)


def last_states(operator, data, lengths=None, **attributes):
    """Return the output Y_h, [direction, row, hidden], of the reference evaluator and of ONNX Runtime."""
    gates = {"LSTM": 4, "GRU": 3}[operator]
    weights = np.random.default_rng(1)
    w = weights.standard_normal((1, gates * HIDDEN, INPUT)).astype(np.float32)
    r = weights.standard_normal((1, gates * HIDDEN, HIDDEN)).astype(np.float32)
    feed = {"x": data, "w": w, "r": r}
    names = ["x", "w", "r"]
    if lengths is not None:
        feed["lengths"] = np.array(lengths, np.int32)
        names += ["", "lengths"]
    node = helper.make_node(operator, names, ["", "y"], hidden_size=HIDDEN, **attributes)
    ports = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feed.items()]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", ports, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    (reference,) = ReferenceEvaluator(model).run(None, feed)
    (engine,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)
    return reference, engine


seen = True
for operator in ("LSTM", "GRU"):
    reference, engine = last_states(operator, x, [STEPS, 2])
    alone, _ = last_states(operator, x[:2, 1:])
    full, _ = last_states(operator, x)
    clipped, clipped_engine = last_states(operator, x, clip=0.001)
    facts = {
        "reference: row of 2 steps = the whole padded row": np.allclose(reference, full, atol=1e-6),
        "reference: row of 2 steps = that row alone": np.allclose(reference[:, 1], alone[:, 0], atol=1e-4),
        "ONNX Runtime: row of 2 steps = that row alone": np.allclose(engine[:, 1], alone[:, 0], atol=1e-4),
        "reference: clip changes nothing": np.array_equal(clipped, full),
        "ONNX Runtime: clip changes nothing": np.allclose(clipped_engine, full, atol=1e-4),
    }
    print(operator, facts)
    seen &= list(facts.values()) == [True, False, True, True, False]
sys.exit(0 if seen else 1)
PYTHON
"$folder/venv/bin/python" "$folder/recurrent.py"

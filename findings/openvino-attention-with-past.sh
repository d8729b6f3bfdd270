#!/bin/bash
# OpenVINO 2026.2.1 (CPU) loads the ONNX operator Attention with past keys and values (opset 23) and computes other numbers
# than ONNX defines, without an error; 2026.4.1 computes the right ones. float32 is asked for in both.
# Exits with 0 if both behaviours are seen.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q onnx==1.23.2 numpy==2.4.6
cat >"$folder/attention.py" <<'PYTHON'
import sys

import numpy as np
import openvino
from onnx import TensorProto, helper

HEADS, SIZE, QUERIES, NEW, PAST = 3, 8, 4, 6, 12
random = np.random.default_rng(0)
shapes = {
    "q": (2, QUERIES, HEADS * SIZE),
    "k": (2, NEW, HEADS * SIZE),
    "v": (2, NEW, HEADS * SIZE),
    "mask": (QUERIES, PAST + NEW),
    "past_k": (2, HEADS, PAST, SIZE),
    "past_v": (2, HEADS, PAST, SIZE),
}
data = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
node = helper.make_node("Attention", [*shapes], ["y", "k_out", "v_out"], q_num_heads=HEADS, kv_num_heads=HEADS)
ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
results = {"y": shapes["q"], **dict.fromkeys(("k_out", "v_out"), (2, HEADS, PAST + NEW, SIZE))}
outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in results.items()]
graph = helper.make_graph([node], "g", ports, outputs)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
core = openvino.Core()
compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
own = np.array(compiled(list(data.values()))[0])


def heads(name):
    return data[name].reshape(2, -1, HEADS, SIZE).transpose(0, 2, 1, 3)


keys, values = (np.concatenate([data[f"past_{name}"], heads(name)], axis=2) for name in "kv")
scores = heads("q") @ keys.transpose(0, 1, 3, 2) / np.sqrt(SIZE) + data["mask"]
weights = np.exp(scores - scores.max(-1, keepdims=True))
expected = (weights / weights.sum(-1, keepdims=True) @ values).transpose(0, 2, 1, 3).reshape(shapes["q"])
difference = float(np.abs(own - expected).max())
print("openvino", openvino.__version__.split("-")[0], "largest difference", difference)
sys.exit(0 if (difference > 0.05) == (sys.argv[1] == "other") else 1)
PYTHON
for version in 2026.2.1:other 2026.4.1:right; do
  "$folder/venv/bin/pip" install -q "openvino==${version%:*}"
  "$folder/venv/bin/python" "$folder/attention.py" "${version#*:}"
done

#!/bin/bash
# The reference evaluator of onnx 1.23.2 computes three operators otherwise than ONNX defines them, without an error:
# LpNormalization with p=1 divides by the sum of the values, not of their absolute values; LRN looks at neighbours only in
# as many channels as the batch has rows (one row: channel 0), and the others keep their numbers; GridSample with
# mode=cubic and padding_mode=border clamps the position of a sample, PyTorch and ONNX Runtime each of its pixels.
# NumPy decides about the first two, PyTorch 2.13.0 about the third; ONNX Runtime 1.32.0 agrees with them.
# Exits with 0 if this is seen.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 torch==2.13.0
cat >"$folder/norms.py" <<'PYTHON'
import sys

import numpy as np
import onnxruntime
import torch
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

random = np.random.default_rng(0)


def results(operator, opset, *inputs, **attributes):
    feed = {f"x{index}": array for index, array in enumerate(inputs)}
    node = helper.make_node(operator, [*feed], ["y"], **attributes)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in feed.items()]
    graph = helper.make_graph([node], "g", ports, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    (reference,) = ReferenceEvaluator(model).run(None, feed)
    (engine,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)
    return reference, engine


def normal(*shape):
    return random.standard_normal(shape).astype(np.float32)


rows = normal(4, 6)
channels = normal(1, 6, 2, 2)  # one row
squares = sum(np.pad(channels**2, ((0, 0), (1, 1), (0, 0), (0, 0)))[:, start : start + 6] for start in range(3))
picture, grid = normal(1, 2, 5, 6), random.uniform(-2, 2, (1, 3, 4, 2)).astype(np.float32)
sampled = torch.nn.functional.grid_sample(
    torch.from_numpy(picture), torch.from_numpy(grid), "bicubic", "border", align_corners=True
)
cases = {
    "LpNormalization": (
        results("LpNormalization", 22, rows, axis=1, p=1),
        rows / np.abs(rows).sum(1, keepdims=True),
    ),
    "LRN": (
        results("LRN", 13, channels, size=3, alpha=0.5, beta=0.75, bias=1.0),
        channels / (1 + 0.5 / 3 * squares) ** 0.75,
    ),
    "GridSample": (
        results("GridSample", 22, picture, grid, mode="cubic", padding_mode="border", align_corners=1),
        sampled.numpy(),
    ),
}
seen = True
for operator, ((reference, engine), expected) in cases.items():
    differences = [float(np.abs(own - expected).max()) for own in (reference, engine)]
    print(operator, "largest difference of the reference evaluator", differences[0], "of ONNX Runtime", differences[1])
    seen &= differences[0] > 1e-2 and differences[1] < 1e-4
sys.exit(0 if seen else 1)
PYTHON
"$folder/venv/bin/python" "$folder/norms.py"

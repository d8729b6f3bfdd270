#!/bin/bash
# ONNX Runtime 1.32.0 (CPU) drops the causal mask of the operator Attention (opset 23) when there is one query and past
# keys are given: with is_causal=1 the query then reads new keys behind it, and its answer differs from that of the same
# query as the first of two. onnx defines the same answer for both. Without past keys the mask is applied.
# Where each new key has its query (the usual decoding step), no key is behind, and nothing differs.
# Exits with 0 if this is seen.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
cat >"$folder/attention.py" <<'PYTHON'
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

HEADS, SIZE, PAST, NEW = 2, 8, 3, 4
random = np.random.default_rng(0)
queries = random.standard_normal((1, HEADS, 2, SIZE)).astype(np.float32)
keys, values = random.standard_normal((2, 1, HEADS, NEW, SIZE)).astype(np.float32)
past = random.standard_normal((2, 1, HEADS, PAST, SIZE)).astype(np.float32)


def first_answers(count, with_past, causal=1):
    """Return the answer of the first of `count` queries, by ONNX Runtime and by the reference evaluator."""
    feed = {"q": queries[:, :, :count], "k": keys, "v": values}
    names, outputs = [*feed], ["y"]
    if with_past:
        feed |= {"past_k": past[0], "past_v": past[1]}
        names, outputs = [*names, "", "past_k", "past_v"], ["y", "all_k", "all_v"]
    node = helper.make_node("Attention", names, outputs, is_causal=causal)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in feed.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph([node], "g", ports, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    engine = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    runs = engine.run(["y"], feed)[0], ReferenceEvaluator(model).run(["y"], feed)[0]
    return [run[:, :, 0] for run in runs]


def differs(a, b):
    return float(np.abs(a - b).max()) > 1e-3


seen = True
for with_past in (False, True):
    (one, one_by_onnx), (two, two_by_onnx) = first_answers(1, with_past), first_answers(2, with_past)
    without_mask, _ = first_answers(1, with_past, causal=0)
    facts = {
        "ONNX Runtime, one query / first of two differ": differs(one, two),
        "onnx, the same": differs(one_by_onnx, two_by_onnx),
        "ONNX Runtime, one query: with / without is_causal differ": differs(one, without_mask),
    }
    print("with past keys" if with_past else "without past keys", facts)
    seen &= list(facts.values()) == ([True, False, False] if with_past else [False, False, True])
sys.exit(0 if seen else 1)
PYTHON
"$folder/venv/bin/python" "$folder/attention.py"

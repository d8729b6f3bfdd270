#!/usr/bin/env bash
# torch 2.13.0, torch.onnx.export(dynamo=True): five functions become models that compute other values, and no error is raised.
#
#   interpolate(scale_factor, antialias=True)  takes the factor from the rounded sizes; without antialias, it keeps the given factor
#   avg_pool2d(divisor_override=5)             is divided by the number of elements of the window
#   scatter_reduce(reduce="mean")              takes one of the values that come to a place instead of their mean
#   logaddexp of numbers above 88              is infinite, though torch's own function exists to avoid that
#   scaled_dot_product_attention               a query whose mask is false everywhere gets the mean of the values; torch gives zeros
#
# dynamo=True is the default. ONNX Runtime runs the models without optimization; onnxscript 0.7.2 has the translations.
# Seen on 30 November 2026, CPython 3.11. Fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.32.0 numpy==2.2.6
"$work/env/bin/python" -W ignore - "$work/model.onnx" <<'PY'
import sys

import onnxruntime as ort
import torch
import torch.nn.functional as F

print("torch", torch.__version__, "onnxruntime", ort.__version__)


class Module(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def values(function, *inputs):
    """What torch computes, and what ONNX Runtime computes of the exported model."""
    torch.onnx.export(Module(function), inputs, sys.argv[1], dynamo=True, external_data=False, verbose=False)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
    result = session.run(None, {put.name: tensor.numpy() for put, tensor in zip(session.get_inputs(), inputs)})[0]
    return function(*inputs), torch.from_numpy(result)


picture = torch.arange(16.0).reshape(1, 1, 4, 4) ** 2
row, places = torch.zeros(3), torch.tensor([0, 0, 0, 1])
query, keys = torch.ones(1, 1, 2, 2), torch.tensor([[[[1.0, 2.0], [3.0, 6.0]]]])
masks = torch.tensor([[True, False], [False, False]])


def smaller(antialias):
    return lambda x: F.interpolate(x, scale_factor=0.7, mode="bilinear", antialias=antialias)


def scatter(reduce):
    return lambda x, y: x.scatter_reduce(0, places, y, reduce, include_self=False)


cases = {
    "interpolate, antialias": (False, smaller(True), picture),
    "interpolate": (True, smaller(False), picture),
    "avg_pool2d": (False, lambda x: F.avg_pool2d(x, 2, divisor_override=5), picture),
    "scatter_reduce, mean": (False, scatter("mean"), row, torch.tensor([1.0, 2.0, 6.0, 4.0])),
    "scatter_reduce, sum": (True, scatter("sum"), row, torch.tensor([1.0, 2.0, 6.0, 4.0])),
    "logaddexp": (False, torch.logaddexp, torch.tensor([80.0, 90.0]), torch.tensor([80.0, 89.0])),
    "attention": (False, lambda q, k: F.scaled_dot_product_attention(q, k, k, attn_mask=masks), query, keys),
}
for name, (same, function, *inputs) in cases.items():
    want, got = values(function, *inputs)
    print(f"{name:22} torch {want.flatten().tolist()}; exported {got.flatten().tolist()}")
    assert torch.allclose(want, got, atol=1e-4) == same, name
PY

#!/usr/bin/env bash
# torch 2.13.0, torch.onnx.export(dynamo=False): seven functions become models that compute other values, and no error is raised.
#
#   avg_pool2d(divisor_override=5)     is divided by the number of elements of the window
#   floor_divide of negative numbers   drops the fraction, where torch takes the floor; div(rounding_mode="floor") is right
#   >> of negative integers            drops the fraction too
#   index_put(accumulate=True)         of an index that comes twice adds other values
#   clamp(0.5, 2.7) of integers        has integer limits and an integer result
#   softplus(beta=2, threshold=1)      loses the threshold
#   cdist(p=1)                         computes another distance, with NaN in it
#
# Both exporters are in use, since many scripts set dynamo=False. The models are exported for opset 20 and run by ONNX Runtime without
# optimization. Seen on 30 November 2026, CPython 3.11. Fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.32.0 numpy==2.2.6
"$work/env/bin/python" -W ignore - <<'PY'
import io

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
    file = io.BytesIO()
    torch.onnx.export(Module(function), inputs, file, dynamo=False, opset_version=20)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    result = session.run(None, {put.name: tensor.numpy() for put, tensor in zip(session.get_inputs(), inputs)})[0]
    return function(*inputs), torch.from_numpy(result)


picture = torch.arange(16.0).reshape(1, 1, 4, 4)
whole = torch.tensor([-7, -3, 3, 7])
other = torch.tensor([3, -2, -2, 3])
row = torch.zeros(4)
twice = torch.tensor([1, 1, 2])
left, right = torch.tensor([[0.0, 0.0], [1.0, 3.0]]), torch.tensor([[4.0, 1.0], [1.0, 1.0]])
wrong = {
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2, divisor_override=5), picture),
    "floor_divide": (torch.floor_divide, whole, other),
    ">>": (lambda x: x >> 1, whole),
    "index_put": (lambda x, y: x.index_put((twice,), y, accumulate=True), row, torch.tensor([1.0, 2.0, 4.0])),
    "clamp": (lambda x: x.clamp(0.5, 2.7), torch.arange(4)),
    "softplus": (lambda x: F.softplus(x, beta=2, threshold=1), torch.tensor([0.1, 0.6, 1.0])),
    "cdist": (lambda x, y: torch.cdist(x, y, p=1.0), left, right),
}
right_ones = {
    "div, floor": (lambda x, y: torch.div(x, y, rounding_mode="floor"), whole, other),
    "cdist of 2": (torch.cdist, left[:1], right[:1]),
}
for name, (function, *inputs) in (wrong | right_ones).items():
    want, got = values(function, *inputs)
    same = want.dtype == got.dtype and torch.allclose(want, got, atol=1e-4, equal_nan=True)
    print(f"{name:12} torch {want.flatten().tolist()}; exported {got.flatten().tolist()}")
    assert same == (name in right_ones), name
PY

#!/usr/bin/env bash
# OpenVINO 2026.4.1, convert_model of a module of torch 2.13.0: seven functions become models that compute other values.
#
#   floor_divide, div(rounding_mode="floor")   of integers drop the fraction, where torch takes the floor
#   var and std with correction=2              are those of correction=1
#   round(decimals=2)                          rounds to whole numbers
#   softplus(beta=2, threshold=1)              loses both, so small numbers differ too
#   cdist(p=1)                                 computes another distance, with NaN in it
#   clamp(0.5, 2.7) of integers                has integer limits and an integer result
#   scaled_dot_product_attention               gives NaN for a query whose mask is false everywhere; torch gives zeros
#
# No error is raised. The module is traced with an example input; integers of OpenVINO itself, which it also divides in ways of its
# own, are another matter. Computed with INFERENCE_PRECISION_HINT f32.
# Seen on 30 November 2026, CPython 3.11. Fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 openvino==2026.4.1 numpy==2.2.6
"$work/env/bin/python" -W ignore - <<'PY'
import numpy as np
import openvino as ov
import torch
import torch.nn.functional as F

print("torch", torch.__version__, "openvino", ov.__version__)
core = ov.Core()


class Module(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def values(function, *inputs):
    """What torch computes, and what OpenVINO computes of the converted module."""
    model = ov.convert_model(Module(function), example_input=inputs)
    compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return function(*inputs), torch.from_numpy(np.array(compiled([tensor.numpy() for tensor in inputs])[0]))


whole, other = torch.tensor([-7, -3, 3, 7]), torch.tensor([3, -2, -2, 3])
numbers = torch.tensor([[1.0, 2.0, 4.0, 9.0]])
left, right = torch.tensor([[0.0, 0.0], [1.0, 3.0]]), torch.tensor([[4.0, 1.0], [1.0, 1.0]])
query, keys = torch.ones(1, 1, 2, 2), torch.tensor([[[[1.0, 2.0], [3.0, 6.0]]]])
masks = torch.tensor([[True, False], [False, False]])
cases = {
    "floor_divide": (False, torch.floor_divide, whole, other),
    "div, floor": (False, lambda x, y: torch.div(x, y, rounding_mode="floor"), whole, other),
    "remainder": (True, torch.remainder, whole, other),
    "var, correction 2": (False, lambda x: torch.var(x, dim=1, correction=2), numbers),
    "var, correction 0": (True, lambda x: torch.var(x, dim=1, correction=0), numbers),
    "round, decimals": (False, lambda x: torch.round(x, decimals=2), torch.tensor([0.126, 1.5])),
    "softplus": (False, lambda x: F.softplus(x, beta=2, threshold=1), torch.tensor([0.1, 0.6, 1.0])),
    "softplus, default": (True, F.softplus, torch.tensor([0.1, 0.6, 1.0])),
    "cdist of 1": (False, lambda x, y: torch.cdist(x, y, p=1.0), left, right),
    "clamp": (False, lambda x: x.clamp(0.5, 2.7), torch.arange(4)),
    "attention": (False, lambda q, k: F.scaled_dot_product_attention(q, k, k, attn_mask=masks), query, keys),
}
for name, (same, function, *inputs) in cases.items():
    want, got = values(function, *inputs)
    print(f"{name:18} torch {want.flatten().tolist()}; converted {got.flatten().tolist()}")
    assert (want.dtype == got.dtype and torch.allclose(want, got, atol=1e-4, equal_nan=True)) == same, name
PY

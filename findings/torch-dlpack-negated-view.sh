#!/usr/bin/env bash
# torch 2.13.0: DLPack exports a view of negated numbers with the wrong sign.
#
# The imaginary part of a conjugate shares the memory of the original, and torch negates its elements when it reads them: is_neg() is
# true. A conjugate itself is refused by __dlpack__ ("can't be exported"), as numbers that need gradients are. A negated view is
# exported as if its memory held its values. resolve_neg() makes a copy that is right, and Tensor.numpy() refuses such a view.
# Seen on 30 November 2026, CPython 3.11. Fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.2.6
"$work/env/bin/python" - <<'PY'
import numpy as np
import torch

print("torch", torch.__version__, "numpy", np.__version__)
numbers = torch.tensor([1 + 2j, 3 - 4j])
view = numbers.conj().imag
assert view.is_neg() and view.tolist() == [-2.0, 4.0]
for name, tensor in {"view": view, "view.resolve_neg()": view.resolve_neg()}.items():
    exported = np.from_dlpack(tensor)
    print(f"{name}: torch {tensor.tolist()}, by DLPack {exported.tolist()}")
    assert np.array_equal(exported, tensor.tolist()) == (tensor is not view)
for name, export in {"conjugate by DLPack": lambda: np.from_dlpack(numbers.conj()), "view.numpy()": view.numpy}.items():
    try:
        export()
    except (BufferError, RuntimeError) as error:
        print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}")
    else:
        raise AssertionError(f"{name} raises nothing now")
PY

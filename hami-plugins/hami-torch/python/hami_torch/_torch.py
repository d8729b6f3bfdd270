"""The one place that imports torch: says what to install where it is missing or too old."""

from __future__ import annotations

OLDEST = (2, 3)

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError(
        "torch is not installed; hami-torch needs torch 2.3 or newer, of the build that fits your CUDA driver: "
        "pip install torch",
        name="torch",
    ) from None

if tuple(int(part) for part in torch.__version__.split(".")[:2]) < OLDEST:
    raise ImportError(f"torch {torch.__version__} is installed; hami-torch needs torch 2.3 or newer", name="torch")

__all__ = ["torch"]

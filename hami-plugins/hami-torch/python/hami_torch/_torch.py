"""Import torch; if it is missing or too old, the error says what to install. No other module imports torch directly."""

from __future__ import annotations

from typing import Any

MINIMUM_VERSION = (2, 3)

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

if tuple(int(part) for part in torch.__version__.split(".")[:2]) < MINIMUM_VERSION:
    raise ImportError(f"torch {torch.__version__} is installed; hami-torch needs torch 2.3 or newer", name="torch")

torch_untyped: Any = torch  # for functions that some versions of torch declare without types

__all__ = ["torch", "torch_untyped"]

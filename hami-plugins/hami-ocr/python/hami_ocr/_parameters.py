"""What the backends with a model share: their parameters, and that any thread may call them."""

from __future__ import annotations

from typing import Annotated

import hami


class RunsModel(hami.Backend):
    """Base of the backends with a model; onnxruntime may be called from any thread and releases the GIL."""

    thread = "concurrent"

    threads: Annotated[int, "threads of the model's session; 0: all cores this process may use"] = 0
    provider: Annotated[str, "execution provider of onnxruntime, as in hami-onnx"] = "cpu"


def check_score(value: float | None, name: str, backend: str) -> None:
    """Refuse a parameter that is no score."""
    if value is not None and not 0 <= value <= 1:
        raise hami.ConfigError(f'{backend}: "{name}" is a score from 0 to 1, got {value}')

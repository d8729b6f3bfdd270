"""ModelBackend: the base class of the backends that run a model, with their common parameters."""

from __future__ import annotations

from typing import Annotated

import hami


class ModelBackend(hami.Backend):
    """Declares `threads` and `provider`. onnxruntime releases the GIL, and any number of threads may call a session."""

    thread = "concurrent"

    threads: Annotated[int, "threads of the model's session; 0: all cores that this process may use"] = 0
    provider: Annotated[str, "execution provider of onnxruntime, as in hami-onnx"] = "cpu"

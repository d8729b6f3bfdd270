"""The parameters of the backends that open a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import hami

from hami_onnx._model import Model
from hami_onnx.session import open_session


class OpensModel(hami.Backend):
    """Base of the backends with a `model`; Run is thread-safe and releases the GIL, so any thread may call it."""

    thread = "concurrent"

    model: Annotated[Path, "the ONNX file"]
    provider: Annotated[str, "execution provider: cpu, cuda, tensorrt, openvino, … or a full name of onnxruntime"] = (
        "cpu"
    )
    provider_options: Annotated[list[str], "options of the provider, each key=value"] = []  # noqa: RUF012
    threads: Annotated[int, "threads of the session; 0: all cores this process may use"] = 0

    batched: Annotated[bool | None, "whether axis 0 is a batch; if not said: where the model names it alike"] = None

    def open(self) -> Model:
        return Model(
            open_session(
                self.model,
                provider=self.provider,
                provider_options=self.provider_options,
                threads=self.threads,
                owner=type(self).__name__,
            ),
            self.batched,
            type(self).__name__,
        )

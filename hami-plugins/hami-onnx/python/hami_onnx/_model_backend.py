"""OnnxModelBackend: the base class of the backends that open a model, with their parameters."""

from __future__ import annotations

from typing import Annotated, Any

from hami import FilePath
from hami_model_check.onnx import OnnxLimits

from hami_onnx._model import Model
from hami_onnx.session import open_session


class OnnxModelBackend(OnnxLimits):
    """Opens the model that its parameters describe. Any number of threads may run a session; a run releases the GIL."""

    thread = "concurrent"
    lightweight = True  # all instances share one session

    model: Annotated[FilePath, "path of the ONNX file"]
    provider: Annotated[str, "execution provider: cpu, cuda, tensorrt, openvino, … or its full name in onnxruntime"] = (
        "cpu"
    )
    provider_options: Annotated[list[str], "options of the provider, each written as key=value"] = []  # noqa: RUF012
    threads: Annotated[int, "threads of the session; 0: all cores that this process may use"] = 0

    batched: Annotated[bool | None, "whether axis 0 is a batch; default: detected from the axis names"] = None
    isolate_load: Annotated[bool, "load the model in a child process first, which must succeed"] = False

    def open_model(self, options: Any) -> Model:
        backend = type(self).__name__
        session = open_session(
            self.model,
            provider=self.provider,
            provider_options=self.provider_options,
            threads=self.threads,
            limits=self.onnx_limits(),
            isolate_load=self.isolate_load,
            init_event=options.get("init_event"),
            backend=backend,
        )
        return Model(session, self.batched, backend)

"""LoadTensorrtEngine: reads an engine that was built before, for a TensorrtInferTensor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import hami

from hami_trt._cache import Stored, read
from hami_trt._engine import open_engine
from hami_trt._gpu import gpu_of
from hami_trt._parameters import OpensEngine
from hami_trt._recipe import Gpu, unfit
from hami_trt._tensorrt import Library


class LoadTensorrtEngine(OpensEngine):
    """Read a TensorRT engine and leave it in the instance's options; requests pass unchanged.

    IoC[LoadTensorrtEngine, TensorrtInferTensor; TensorrtInferTensor]

    An engine that `hami compile` or `model::cache` kept has a file X.trt.json beside it: what does not fit that, the
    library or the GPU is refused. One that another program wrote has none; then the library says whether it fits.
    """

    model: Annotated[Path, "the engine: a .trt file"]

    def init(self, options: Any) -> None:
        library, device = self.find_device()
        stored = read_fitting(self.model, library, gpu_of(device), "LoadTensorrtEngine")
        options["tensorrt_engine"] = open_engine(
            stored.blob, library, device, stored.recipe, f'LoadTensorrtEngine: "{self.model}"'
        )


def read_fitting(path: Path, library: Library, gpu: Gpu | None, owner: str) -> Stored:
    """Return an engine, or raise hami.ConfigError with the reason why it is not loaded."""
    try:
        stored = read(path)
    except FileNotFoundError:
        raise hami.ConfigError(f'{owner}: there is no engine "{path}" (looked for {path.resolve()})') from None
    except (OSError, ValueError) as error:
        raise hami.ConfigError(f'{owner}: "{path}" is not loaded: {error}; build it again') from error
    if not stored.blob:
        raise hami.ConfigError(f'{owner}: "{path}" is not loaded: it is empty; build it again')
    reason = None if stored.recipe is None else unfit(stored.recipe, library, gpu)
    if reason:
        raise hami.ConfigError(f'{owner}: "{path}" is not loaded: {reason}; build it again, with what is here')
    return stored

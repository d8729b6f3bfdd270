"""LoadTensorrtEngine: opens an engine file for TensorrtInferTensor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import hami

from hami_trt._cache import StoredEngine, read
from hami_trt._engine import open_engine
from hami_trt._engine_loader import EngineLoader
from hami_trt._gpu import gpu_of
from hami_trt._joining import EngineSource
from hami_trt._recipe import Gpu, incompatibility
from hami_trt._tensorrt import Library


class LoadTensorrtEngine(EngineLoader):
    """Open a TensorRT engine for TensorrtInferTensor; requests pass unchanged.

    IoC[LoadTensorrtEngine, TensorrtInferTensor; TensorrtInferTensor]

    An engine from `hami compile` or `model::cache` has a sidecar file X.trt.json. It is rejected if it does not match
    that file, the library or the GPU. An engine of another program has no such file; the library checks it.
    """

    model: Annotated[hami.types.FilePath, "engine file (.trt, .engine, .plan)"]

    def init(self, options: Any) -> None:
        library, device = self.find_library_and_device()
        stored = read_compatible(self.model, library, gpu_of(device), "LoadTensorrtEngine")
        if stored.recipe and stored.recipe.get("version_compatible"):
            hami.native.check_library(self.model, "model of LoadTensorrtEngine, a version compatible engine,")
        options["tensorrt_engine"] = open_engine(
            stored.blob, library, device, stored.recipe, f'LoadTensorrtEngine: "{self.model}"'
        )
        options["tensorrt_source"] = source_of(self.model, stored)


def source_of(path: Path, stored: StoredEngine) -> EngineSource:
    """Return what the engine in a file is made of, as far as its recipe says it."""
    return EngineSource(path, (path,), precision=(stored.recipe or {}).get("precision"))


def read_compatible(path: Path, library: Library, gpu: Gpu | None, owner: str) -> StoredEngine:
    """Return the engine in a file.

    Raises:
        hami.ConfigError: the file is missing or damaged, or its engine cannot run with this library and GPU.
    """
    try:
        stored = read(path)
    except FileNotFoundError:
        raise hami.ConfigError(f'{owner}: engine file "{path}" does not exist (looked for {path.resolve()})') from None
    except (OSError, ValueError) as error:
        raise hami.ConfigError(f'{owner}: cannot use "{path}": {error}; build the engine again') from error
    if not stored.blob:
        raise hami.ConfigError(f'{owner}: cannot use "{path}": it is empty; build the engine again')
    reason = None if stored.recipe is None else incompatibility(stored.recipe, library, gpu)
    if reason:
        raise hami.ConfigError(f'{owner}: cannot use "{path}": {reason}; build the engine again on this machine')
    return stored

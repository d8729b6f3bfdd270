"""Onnx2Tensorrt: builds the engine of an ONNX model, or finds it in the cache, for TensorrtInferTensor."""

from __future__ import annotations

import os
import threading
import weakref
from pathlib import Path
from typing import Annotated, Any, Literal

import hami
from hami_model_check.onnx import OnnxLimits

from hami_trt._build_options import BuildOptions
from hami_trt._engine import Engine, open_engine
from hami_trt._engine_loader import EngineLoader
from hami_trt._gpu import gpu_of
from hami_trt._joining import EngineSource
from hami_trt._onnx_files import weights_of
from hami_trt._prepare import prepare_engine
from hami_trt._recipe import make_recipe, recipe_key

_lock = threading.Lock()  # guards _open_engines; held during a build, so that the instances of a node build once
_open_engines: weakref.WeakValueDictionary[tuple[str, str], Engine] = weakref.WeakValueDictionary()


def _reset_after_fork() -> None:
    """Forget the parent's engines, which work only there, and its lock, which may be held."""
    global _lock, _open_engines
    _lock, _open_engines = threading.Lock(), weakref.WeakValueDictionary()


os.register_at_fork(after_in_child=_reset_after_fork)


class Onnx2Tensorrt(EngineLoader, OnnxLimits):
    """Build the TensorRT engine of an ONNX model for TensorrtInferTensor; requests pass unchanged.

    IoC[Onnx2Tensorrt, TensorrtInferTensor; TensorrtInferTensor]

    `max`, `min` and `opt` are numbers of rows (axis 0), or shapes: "4x3x224x224", "a:4x3x224x224,b:4x10".
    `model::cache` is a file or a folder that keeps the engine. The engine is built again only if the model, an option,
    the library or the GPU has changed.
    """

    model: Annotated[hami.types.FilePath, "ONNX file"]
    max_shapes: Annotated[str | None, hami.types.Key("max"), "largest shapes; default: 1 row"] = None
    min_shapes: Annotated[str | None, hami.types.Key("min"), "smallest shapes; default: 1 row of `max`"] = None
    opt: Annotated[str | None, "shapes to optimize for; default: `max`"] = None
    instance_num: Annotated[int, "number of optimization profiles, one per instance"] = 1
    precision: Annotated[
        Literal["fp32", "tf32", "fp16", "bf16", "int8"] | None, "precision to compute in; default: types of the model"
    ] = None
    mean: Annotated[list[str], "values to subtract from the input, per channel or one for all"] = []  # noqa: RUF012
    std: Annotated[list[str], "values to divide by afterwards, per channel or one for all"] = []  # noqa: RUF012
    cache: Annotated[Path | None, hami.types.Key("model::cache"), "a .trt file or a folder that keeps the engine"] = (
        None
    )
    timing_cache: Annotated[
        Path | None, hami.types.Alias("model::timingcache"), "file that keeps the timings of a build for later builds"
    ] = None
    workspace: Annotated[hami.types.ByteSize | None, "memory limit of a layer; default: all memory"] = None
    optimization_level: Annotated[int | None, "0 (fastest build) to 5; default: that of the library"] = None
    version_compatible: Annotated[bool, "also run with later versions of the same major version"] = False
    hardware_compatible: Annotated[
        Literal["ampere_plus", "same_compute_capability"] | None, "also run on these GPUs (TensorRT)"
    ] = None
    compute_capability: Annotated[list[str], "GPUs to build for, as 8.9 (TensorRT-RTX); default: all"] = []  # noqa: RUF012

    def init(self, options: Any) -> None:
        library, device = self.find_library_and_device()
        build_options = BuildOptions(
            model=self.model,
            library=library,
            owner="Onnx2Tensorrt",
            max=self.max_shapes,
            min=self.min_shapes,
            opt=self.opt,
            profiles=self.instance_num,
            precision=self.precision,
            mean=self.mean,
            std=self.std,
            workspace=self.workspace,
            optimization_level=self.optimization_level,
            version_compatible=self.version_compatible,
            hardware_compatible=self.hardware_compatible,
            compute_capability=self.compute_capability,
            timing_cache=self.timing_cache,
            device=device,
            graph_limits=self.onnx_limits(),
            init_event=options["init_event"],
        )
        with _lock:
            recipe = make_recipe(build_options, gpu_of(device))
            key = (recipe_key(recipe), str(device))
            engine = _open_engines.get(key)
            if engine is None:
                prepared = prepare_engine(build_options, recipe, self.cache)
                if prepared.path is not None and not prepared.built and self.version_compatible:
                    hami.native.check_library(
                        prepared.path, "model::cache of Onnx2Tensorrt, with version_compatible = true,"
                    )
                stored = prepared.engine
                engine = open_engine(stored.blob, library, device, stored.recipe, "Onnx2Tensorrt")
                _open_engines[key] = engine
        options["tensorrt_engine"] = engine
        options["tensorrt_source"] = EngineSource(
            self.model,
            (self.model, *weights_of(self.model, "Onnx2Tensorrt", self.onnx_limits())),
            is_onnx=True,
            precision=self.precision,
            settings=(recipe_key(recipe),),
            limits=self.onnx_limits(),
        )

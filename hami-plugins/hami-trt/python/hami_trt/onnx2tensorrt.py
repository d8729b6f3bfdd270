"""Onnx2Tensorrt: builds the engine of an ONNX model, or finds it in the cache, for a TensorrtInferTensor."""

from __future__ import annotations

import threading
import weakref
from pathlib import Path
from typing import Annotated, Any, Literal

import hami

from hami_trt._engine import Engine, open_engine
from hami_trt._engines import engine_of
from hami_trt._gpu import gpu_of
from hami_trt._options import Options
from hami_trt._parameters import OpensEngine
from hami_trt._recipe import key_of, recipe_of

_lock = threading.Lock()  # guards _open, and lets the instances of a node build one engine
_open: weakref.WeakValueDictionary[tuple[str, str], Engine] = weakref.WeakValueDictionary()


class Onnx2Tensorrt(OpensEngine):
    """Build an ONNX model for TensorRT and leave the engine in the instance's options; requests pass unchanged.

    IoC[Onnx2Tensorrt, TensorrtInferTensor; TensorrtInferTensor]

    `max`, `min` and `opt` are numbers of rows (axis 0), or shapes of the inputs: "4x3x224x224", "a:4x3x224x224,b:4x10".
    With `model::cache`, a file or a folder, the engine is kept, and built anew only if what decides it changed.
    """

    model: Annotated[Path, "the ONNX file"]
    most: Annotated[str | None, hami.Key("max"), "largest shapes; if not said: 1 row"] = None
    least: Annotated[str | None, hami.Key("min"), "smallest shapes; if not said: 1 row of `max`"] = None
    opt: Annotated[str | None, "the shapes to tune for; if not said: `max`"] = None
    instance_num: Annotated[int, "one profile for each instance"] = 1
    precision: Annotated[
        Literal["fp32", "tf32", "fp16", "bf16", "int8"] | None, "to compute in; if not said: the types of the model"
    ] = None
    mean: Annotated[list, "subtracted from the input, one for each channel or one for all"] = []  # noqa: RUF012
    std: Annotated[list, "then divides it"] = []  # noqa: RUF012
    cache: Annotated[Path | None, hami.Key("model::cache"), "a .trt file, or a folder, to keep the engine in"] = None
    timing_cache: Annotated[Path | None, "a file that keeps what builds measured, for later builds"] = None
    workspace: Annotated[hami.ByteSize | None, "memory that a layer may use; if not said: all"] = None
    optimization_level: Annotated[int | None, "of the builder, 0 (quick) to 5; if not said: the library's"] = None
    version_compatible: Annotated[bool, "runs with later versions of the same major version too"] = False
    hardware_compatible: Annotated[
        Literal["ampere_plus", "same_compute_capability"] | None, "runs on these GPUs too"
    ] = None
    compute_capability: Annotated[list, "of the GPUs to build for, as 8.9 (TensorRT-RTX); if not said: all"] = []  # noqa: RUF012

    def init(self, options: Any) -> None:
        library, device = self.find_device()
        given = Options(
            model=self.model,
            library=library,
            owner="Onnx2Tensorrt",
            max=self.most,
            min=self.least,
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
            ready=options["init_event"],
        )
        with _lock:
            recipe = recipe_of(given, gpu_of(device))
            key = (key_of(recipe), str(device))
            engine = _open.get(key)
            if engine is None:
                found = engine_of(given, recipe, self.cache).engine
                engine = _open[key] = open_engine(found.blob, library, device, found.recipe, "Onnx2Tensorrt")
        options["tensorrt_engine"] = engine

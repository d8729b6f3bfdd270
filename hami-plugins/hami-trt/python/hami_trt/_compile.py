"""The command `hami compile`, which builds the engine of an ONNX model ahead of time."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hami_trt._build_options import PRECISIONS
from hami_trt._tensorrt import HARDWARE_COMPATIBILITY, LIBRARIES

if TYPE_CHECKING:
    from hami_tensor import Device

    from hami_trt._recipe import Gpu

OWNER = "hami compile"


def add_command(commands: Any) -> None:
    from hami.cli import positive, whole

    text = "build the TensorRT engine of an ONNX model ahead of time"
    parser = commands.add_parser("compile", help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
    parser.add_argument("model", type=Path, metavar="MODEL", help="ONNX file")
    shapes = "a number of rows, or shapes: 4x3x224x224, or a:4x3x224x224,b:4x10"
    parser.add_argument("--max", metavar="SHAPES", help=f"largest shapes: {shapes}; default: 1 row")
    parser.add_argument("--min", metavar="SHAPES", help="smallest shapes; default: 1 row of --max")
    parser.add_argument("--opt", metavar="SHAPES", help="shapes to optimize for; default: --max")
    parser.add_argument("--instance-num", type=positive, default=1, metavar="N", help="number of optimization profiles")
    parser.add_argument("--precision", choices=PRECISIONS, help="precision to compute in; default: types of the model")
    parser.add_argument("--mean", default="", metavar="A,B,C", help="values to subtract from the input, per channel")
    parser.add_argument("--std", default="", metavar="A,B,C", help="values to divide by afterwards, per channel")
    parser.add_argument("--workspace", type=whole(0, 1 << 62), metavar="BYTES", help="memory limit of a layer")
    parser.add_argument(
        "--optimization-level", type=whole(0, 5), metavar="0…5", help="optimization level of the builder"
    )
    parser.add_argument("--version-compatible", action="store_true", help="also run with later versions of the library")
    parser.add_argument("--hardware-compatible", choices=HARDWARE_COMPATIBILITY, help="also run on these GPUs")
    parser.add_argument(
        "--compute-capability", default="", metavar="8.9,12.0", help="GPUs to build for (TensorRT-RTX); default: all"
    )
    parser.add_argument("--timing-cache", type=Path, metavar="FILE", help="file that keeps timings for later builds")
    parser.add_argument("--library", choices=LIBRARIES, help="library to build with; default: the installed one")
    parser.add_argument("--device", default="cuda", help="GPU to build on, for a library that needs one")
    parser.add_argument(
        "--output", type=Path, metavar="PATH", help="a .trt file or a folder; default: a file beside the model"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--traceback", action="store_true", help="show the traceback of an error")
    parser.set_defaults(run=compile_model)


def compile_model(arguments: argparse.Namespace) -> int:
    """Build the engine, or find that it is up to date. Print its path."""
    from hami_trt._build_options import BuildOptions
    from hami_trt._prepare import prepare_engine
    from hami_trt._recipe import make_recipe
    from hami_trt._tensorrt import find_library

    library = find_library(arguments.library, OWNER)
    device, gpu = (None, None) if library.builds_for_any_gpu else _find_gpu(arguments.device)
    options = BuildOptions(
        model=arguments.model,
        library=library,
        owner=OWNER,
        max=arguments.max,
        min=arguments.min,
        opt=arguments.opt,
        profiles=arguments.instance_num,
        precision=arguments.precision,
        mean=_split(arguments.mean),
        std=_split(arguments.std),
        workspace=arguments.workspace,
        optimization_level=arguments.optimization_level,
        version_compatible=arguments.version_compatible,
        hardware_compatible=arguments.hardware_compatible,
        compute_capability=_split(arguments.compute_capability),
        timing_cache=arguments.timing_cache,
        device=device,
    )
    started = time.monotonic()
    cache = arguments.output or arguments.model.with_suffix(".trt")
    engine, path, built = prepare_engine(options, make_recipe(options, gpu), cache)
    seconds = time.monotonic() - started
    if arguments.json:
        result = {"engine": str(path), "built": built, "seconds": round(seconds, 3), "bytes": len(engine.blob)}
        print(json.dumps({**result, "recipe": engine.recipe, **engine.facts}))
    elif built:
        print(f"{path}: built in {seconds:.1f} s, {len(engine.blob)} bytes")
    else:
        print(f"{path}: up to date")
    return 0


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _find_gpu(name: str) -> tuple[Device, Gpu]:
    from hami_cuda.device import find_device

    from hami_trt._gpu import gpu_of

    device = find_device(name, OWNER)
    return device, gpu_of(device)

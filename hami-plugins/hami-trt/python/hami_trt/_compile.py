"""The command `hami compile`: builds the engine of an ONNX model ahead of time."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from hami_trt._options import PRECISIONS
from hami_trt._tensorrt import COMPATIBILITY, LIBRARIES

OWNER = "hami compile"


def add_command(commands: Any) -> None:
    text = "build the TensorRT engine of an ONNX model ahead of time"
    parser = commands.add_parser("compile", help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
    parser.add_argument("model", type=Path, metavar="MODEL", help="the ONNX file")
    shapes = "a number of rows, or shapes: 4x3x224x224, or a:4x3x224x224,b:4x10"
    parser.add_argument("--max", metavar="SHAPES", help=f"largest: {shapes}")
    parser.add_argument("--min", metavar="SHAPES", help="smallest; else 1 row of --max")
    parser.add_argument("--opt", metavar="SHAPES", help="to tune for; else --max")
    parser.add_argument("--instance-num", type=int, default=1, metavar="N", help="one profile for each instance")
    parser.add_argument("--precision", choices=PRECISIONS, help="to compute in; else the types of the model")
    parser.add_argument("--mean", default="", metavar="A,B,C", help="subtracted from the input")
    parser.add_argument("--std", default="", metavar="A,B,C", help="then divides it")
    parser.add_argument("--workspace", type=int, metavar="BYTES", help="memory that a layer may use")
    parser.add_argument("--optimization-level", type=int, metavar="0…5", help="of the builder")
    parser.add_argument("--version-compatible", action="store_true", help="for later versions of the library too")
    parser.add_argument("--hardware-compatible", choices=COMPATIBILITY, help="for these GPUs too")
    parser.add_argument(
        "--compute-capability", default="", metavar="8.9,12.0", help="of the GPUs to build for (TensorRT-RTX); else all"
    )
    parser.add_argument("--timing-cache", type=Path, metavar="FILE", help="keeps what builds measured")
    parser.add_argument("--library", choices=LIBRARIES, help="else the one that is installed")
    parser.add_argument("--device", default="cuda", help="the GPU that a library builds for which needs one")
    parser.add_argument("--output", type=Path, metavar="PATH", help="a .trt file or a folder; else beside the model")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--traceback", action="store_true", help="show where an error comes from")
    parser.set_defaults(run=compile_model)


def compile_model(arguments: argparse.Namespace) -> int:
    """Build, or find that it is built already; print the file."""
    from hami_trt._engines import engine_of
    from hami_trt._options import Options
    from hami_trt._recipe import recipe_of
    from hami_trt._tensorrt import find_library

    library = find_library(arguments.library, OWNER)
    device, gpu = (None, None) if library.builds_for_any else _gpu(arguments.device)
    options = Options(
        model=arguments.model,
        library=library,
        owner=OWNER,
        max=arguments.max,
        min=arguments.min,
        opt=arguments.opt,
        profiles=arguments.instance_num,
        precision=arguments.precision,
        mean=_parts(arguments.mean),
        std=_parts(arguments.std),
        workspace=arguments.workspace,
        optimization_level=arguments.optimization_level,
        version_compatible=arguments.version_compatible,
        hardware_compatible=arguments.hardware_compatible,
        compute_capability=_parts(arguments.compute_capability),
        timing_cache=arguments.timing_cache,
        device=device,
    )
    started = time.monotonic()
    engine, path, new = engine_of(
        options, recipe_of(options, gpu), arguments.output or arguments.model.with_suffix(".trt")
    )
    seconds = time.monotonic() - started
    if arguments.json:
        told = {"engine": str(path), "built": new, "seconds": round(seconds, 3), "bytes": len(engine.blob)}
        print(json.dumps({**told, "recipe": engine.recipe, **engine.facts}))
    elif new:
        print(f"{path}: built in {seconds:.1f} s, {len(engine.blob)} bytes")
    else:
        print(f"{path}: nothing to do, it is of this model and these options")
    return 0


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _gpu(name: str) -> tuple[Any, Any]:
    from hami_torch.backend import device_of

    from hami_trt._gpu import gpu_of

    device = device_of(name, OWNER, ("cuda",))
    return device, gpu_of(device)

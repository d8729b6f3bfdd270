"""Registers the backend of this package. It, and numpy with it, are imported when a pipeline uses them."""

from __future__ import annotations

from typing import Any

import pluggy

hookimpl = pluggy.HookimplMarker("hami")


@hookimpl
def hami_register(registry: Any) -> None:
    registry.add("AccelTensor", "hami_accel.accel_tensor:AccelTensor")


@hookimpl
def hami_report() -> dict[str, str]:
    from hami_accel.platform import Platform

    return {"accelerators": ", ".join(Platform().names())}


@hookimpl
def hami_commands(subparsers: Any) -> None:
    from hami.cli import count, positive, real

    verify = subparsers.add_parser(
        "compare",
        help="compare the outputs of two models",
        description="Run two models on the same inputs, and print how each output of B differs from that of A. The "
        "exit status is 1 if an output is beyond --cosine, --atol or --rtol.",
        epilog="example: hami compare net.onnx recipe.accel --select-b 1 --inputs calibration",
        allow_abbrev=False,
    )
    verify.add_argument("a", help="model, or packed file")
    verify.add_argument("b", help="model, or packed file")
    verify.add_argument("--device", default="onnx", help="device of both models (default: onnx)")
    verify.add_argument("--select-a", type=count, default=0, metavar="N", help="number of the model in a packed file A")
    verify.add_argument("--select-b", type=count, default=0, metavar="N", help="number of the model in a packed file B")
    verify.add_argument("--inputs", metavar="DIR", help="folder of .npy or .npz files")
    verify.add_argument("--random", type=positive, default=100, metavar="N", help="random inputs (default: 100)")
    verify.add_argument("--seed", type=count, default=0, metavar="N", help="of the random inputs (default: 0)")
    verify.add_argument("--atol", type=real(), help="largest absolute difference")
    verify.add_argument("--rtol", type=real(), help="largest difference relative to the output of A")
    verify.add_argument("--cosine", type=real(-1, 1), default=0.99, help="least cosine similarity (default: 0.99)")
    _add_common(verify)
    verify.set_defaults(run=_verify)
    pack = subparsers.add_parser(
        "compile",
        help="quantise models by a recipe and pack them into one file",
        description="Quantise models by a recipe, and pack them into one file for AccelModel.",
        epilog="example: hami compile recipe.toml",
        allow_abbrev=False,
    )
    pack.add_argument("recipe", help="TOML or YAML file")
    pack.add_argument("-o", "--output", help="packed file (default: the recipe with the ending .accel)")
    _add_common(pack)
    pack.set_defaults(run=_compile)


def _add_common(command: Any) -> None:
    command.add_argument("--json", action="store_true", help="print JSON")
    command.add_argument("--traceback", action="store_true", help="print the traceback of an error")


def _verify(arguments: Any) -> int:
    from hami_accel.verify import run

    return run(arguments)


def _compile(arguments: Any) -> int:
    from hami_accel.verify import run_compile

    return run_compile(arguments)

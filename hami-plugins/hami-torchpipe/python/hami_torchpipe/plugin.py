"""The entry module of the plugin: backends for imported configurations, and hints for names and keys of torchpipe."""

from __future__ import annotations

from typing import Any

import pluggy

from hami_torchpipe import replacements

hookimpl = pluggy.HookimplMarker("hami")


@hookimpl
def hami_register(registry: Any) -> None:
    """Register what the core and other plugins do not have."""
    for name in ("CopyKey", "JumpTo", "MergeParts", "RunPart", "SplitParts"):
        registry.add(name, f"hami_torchpipe.jumps:{name}")
    registry.add("SoftmaxArgMaxTensor", "hami_torchpipe.soft_arg_max:SoftmaxArgMaxTensor")
    registry.generate("Jump", "JumpTo[DagDispatcher]")
    registry.generate("MapReduce", "S[SplitParts,FanOut[RunPart[DagDispatcher]],MergeParts]")


@hookimpl
def hami_commands(subparsers: Any) -> None:
    from hami.cli import add_command

    command = add_command(
        subparsers,
        "import-torchpipe",
        "hami_torchpipe.importing.command:import_command",
        "write a configuration of torchpipe, v0 or 0.2, as one of HAMi",
        examples=["hami import-torchpipe resnet18.toml --output resnet18-hami.toml"],
    )
    command.add_argument("file", metavar="FILE", help="the configuration: a TOML file")
    command.add_argument("--output", metavar="FILE", help="the file to write; default: print it")
    command.add_argument("--cpu", action="store_true", help="use hami-image and hami-onnx instead of a GPU")


@hookimpl
def hami_missing_backend(name: str) -> str | None:
    return replacements.hint(replacements.BACKENDS.get(name))


@hookimpl
def hami_unknown_key(key: str) -> str | None:
    return replacements.hint(replacements.KEYS.get(key))

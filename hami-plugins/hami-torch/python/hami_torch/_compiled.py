"""Modules that torch.compile made, and which of them the threads of a pipe can run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import hami

from hami_torch._torch import torch

ORIGINAL = "_orig_mod"  # where what torch.compile gave has the module; the names in its state dict begin with it


def is_compiled(program: object) -> bool:
    """Whether torch.compile has a part in it, which compiles when it meets another shape."""
    return any(True for _ in _parts(program))


def refuse_own_graphs(program: object, owner: str) -> None:
    """Refuse what torch.compile runs as CUDA graphs of its own.

    Their outputs are overwritten by the next run, whoever reads them still, and torch can replay them only on the
    thread that imported it.
    """
    if any(_settings(made).get("triton.cudagraphs") for made in _parts(program)):
        raise hami.ConfigError(
            f'{owner}: torch.compile made the model with CUDA graphs of its own, as mode="reduce-overhead" and '
            '"max-autotune" do, and these are for one thread; compile it with the default mode, or with '
            '"max-autotune-no-cudagraphs", and give "graphs" here'
        )


def _parts(program: object) -> Iterator[Any]:
    """Yield each part that torch.compile made, as a whole or in place."""
    for part in program.modules() if isinstance(program, torch.nn.Module) else ():
        made = part if hasattr(part, ORIGINAL) else getattr(part, "_compiled_call_impl", None)
        if made is not None:
            yield made


def _settings(made: Any) -> dict[str, Any]:
    """Return what it is compiled with by torch's own compiler, {} if it is another one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its parts warn of each other where they are imported
        return made.get_compiler_config() or {}

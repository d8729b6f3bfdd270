"""Modules that torch.compile made: which of them the threads of a pipe can run, and when one must run alone."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import hami

from hami_torch._torch import torch

ORIGINAL = "_orig_mod"  # where what torch.compile gave has the module; the names in its state dict begin with it
_MOST_KEPT = 4096  # inputs that a module has met; more than that are forgotten and met again


class _Turns:
    """Many run at once, or one alone; whoever comes while one waits for that comes after it."""

    def __init__(self) -> None:
        self._door = threading.Lock()  # passed by all, held by the one that is alone
        self._left = threading.Condition()  # guards _inside
        self._inside = 0

    @contextmanager
    def together(self) -> Iterator[None]:
        with self._door, self._left:
            self._inside += 1
        try:
            yield
        finally:
            with self._left:
                self._inside -= 1
                self._left.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._door:
            with self._left:
                self._left.wait_for(lambda: not self._inside)
            yield


_turns = _Turns()  # of all compiled modules: torch traces for the whole process
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_turns.__init__)  # those inside stay in the parent


class CompiledModule:
    """Call what torch.compile made, alone in the process with input that it may be compiled for.

    While torch compiles, it refuses other threads that run compiled modules, and with some versions they would find
    weights without values.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self._met: set[tuple[Any, ...]] = set()

    def __call__(self, *given: torch.Tensor, **named: torch.Tensor) -> Any:
        key = (
            torch.is_inference_mode_enabled(),
            *map(_kind, given),
            *zip(named, map(_kind, named.values()), strict=True),
        )
        if key in self._met:
            with _turns.together():
                return self._call(*given, **named)
        with _turns.alone():
            output = self._call(*given, **named)
            if len(self._met) == _MOST_KEPT:
                self._met.clear()
            self._met.add(key)
            return output


def _kind(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return of a tensor what torch asks to know whether what it compiled goes with it, and more."""
    strides = tensor.stride() if tensor.layout == torch.strided else tensor.layout
    return tensor.shape, strides, tensor.dtype, tensor.is_inference()


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

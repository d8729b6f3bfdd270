"""Modules made by torch.compile: which of them a pipe can run, and which of their runs must be alone."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import hami

from hami_torch._torch import torch

# Attribute in which a compiled module holds the original one; the names in its state dict start with this prefix.
ORIGINAL_MODULE = "_orig_mod"
# Input signatures that a module remembers. If there are more, all are forgotten, and each runs alone once more.
_MAX_KNOWN_SIGNATURES = 4096


class _CompileLock:
    """A readers-writer lock: many shared holders or one exclusive holder. A waiting exclusive holder goes first."""

    def __init__(self) -> None:
        self._entry = threading.Lock()  # every holder passes it; the exclusive one keeps it
        self._shared_left = threading.Condition()  # guards _shared
        self._shared = 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._entry, self._shared_left:
            self._shared += 1
        try:
            yield
        finally:
            with self._shared_left:
                self._shared -= 1
                self._shared_left.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        with self._entry:
            with self._shared_left:
                self._shared_left.wait_for(lambda: not self._shared)
            yield


_compile_lock = _CompileLock()  # one for all compiled modules, because torch traces for the whole process


def _replace_lock_after_fork() -> None:
    global _compile_lock
    _compile_lock = _CompileLock()  # the holders are threads of the parent


os.register_at_fork(after_in_child=_replace_lock_after_fork)


class CompiledModule:
    """Calls a compiled module; a call whose input may start a compilation runs alone in the process.

    While torch compiles, it rejects other threads that run compiled modules, and with some versions these would find
    weights without values.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self._known: set[tuple[Any, ...]] = set()

    def __call__(self, *args: torch.Tensor, **kwargs: torch.Tensor) -> Any:
        signature = (
            torch.is_inference_mode_enabled(),
            *map(_tensor_signature, args),
            *zip(kwargs, map(_tensor_signature, kwargs.values()), strict=True),
        )
        if signature in self._known:
            with _compile_lock.shared():
                return self._call(*args, **kwargs)
        with _compile_lock.exclusive():
            output = self._call(*args, **kwargs)
            if len(self._known) == _MAX_KNOWN_SIGNATURES:
                self._known.clear()
            self._known.add(signature)
            return output


def _tensor_signature(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return at least the properties of a tensor by which torch decides whether compiled code fits it."""
    strides = tensor.stride() if tensor.layout == torch.strided else tensor.layout
    return tensor.shape, strides, tensor.dtype, tensor.is_inference()


def eager(program: Any) -> Any:
    """Return what runs the program as it was before torch.compile, so that a run compiles nothing."""
    if not isinstance(program, torch.nn.Module):
        return program
    original = getattr(program, ORIGINAL_MODULE, program)
    return original._call_impl if getattr(original, "_compiled_call_impl", None) is not None else original


def is_compiled(program: object) -> bool:
    """Whether torch.compile made any part of the program, which then compiles when it gets a new shape."""
    return any(True for _ in _compiled_parts(program))


def reject_own_cuda_graphs(program: object, owner: str) -> None:
    """Raise ConfigError if torch.compile runs any part of the program as a CUDA graph of its own.

    The next run overwrites the outputs of such a graph while callers may still read them, and torch can replay it only
    on the thread that imported torch.
    """
    if any(_compiler_config(part).get("triton.cudagraphs") for part in _compiled_parts(program)):
        raise hami.ConfigError(
            f"{owner}: the model is compiled with CUDA graphs of torch.compile, which work on one thread only "
            '(mode="reduce-overhead" and mode="max-autotune" use them); compile it in the default mode or with '
            '"max-autotune-no-cudagraphs", and set the parameter "graphs" instead'
        )


def _compiled_parts(program: Any) -> Iterator[Any]:
    """Yield the parts that torch.compile made, as new modules or in place."""
    for part in program.modules() if isinstance(program, torch.nn.Module) else ():
        compiled = part if hasattr(part, ORIGINAL_MODULE) else getattr(part, "_compiled_call_impl", None)
        if compiled is not None:
            yield compiled


def _compiler_config(compiled: Any) -> dict[str, Any]:
    """Return the settings of torch's own compiler, {} for another compiler."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # importing torch's compiler emits deprecation warnings
        return compiled.get_compiler_config() or {}

"""A stand-in for torch with CUDA, without a GPU: tensors are NumPy arrays, and a test decides when work ends."""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np


class Tensor:
    def __init__(self, array: Any, gpu: int | None = None) -> None:
        self.array = np.asarray(array)
        self.gpu = gpu
        self.dtype, self.shape = f"torch.{self.array.dtype}", self.array.shape

    def to(self, place: Any) -> Tensor:
        return Tensor(self.array.copy(), place[1])

    def is_contiguous(self) -> bool:
        return bool(self.array.flags.c_contiguous)

    def copy_(self, other: Tensor) -> None:
        self.array[...] = other.array

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0) if self.gpu is None else (2, self.gpu)

    def __dlpack__(self, **settings: Any) -> Any:
        return self.array.__dlpack__(**settings)

    def cpu(self) -> Tensor:
        return self

    def numpy(self) -> Any:
        return self.array


class Module:
    """A function of tensors, which notes its name and the priority of the stream that it runs on."""

    def __init__(self, torch: FakeTorch, name: str, function: Callable[..., Any]) -> None:
        self._torch, self._name, self._function = torch, name, function

    def to(self, place: Any) -> Module:
        return self

    def __call__(self, *tensors: Tensor) -> Any:
        stream = self._torch.stream
        self._torch.ran.append((self._name, None if stream is None else stream.priority))
        found = self._function(*(tensor.array for tensor in tensors))
        return tuple(map(Tensor, found)) if isinstance(found, tuple) else Tensor(found)


class Sequential(Module):
    def __init__(self, *modules: Module) -> None:
        self._modules = modules

    def __iter__(self):
        return iter(self._modules)


class Stream:
    def __init__(self, device: int, priority: int = 0) -> None:
        self.priority = priority

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, -5

    def synchronize(self) -> None:
        return None

    def wait_stream(self, other: Stream) -> None:
        self.waited_for = other


class FakeTorch:
    """`module` takes the place of torch. `ran` lists the modules that ran; events end at once unless `hold` is set."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, int | None]] = []
        self.stream: Stream | None = None
        self.default_stream = Stream(0)
        self.hold: threading.Event | None = None
        self.entered = threading.Semaphore(0)
        self.gpus = 1
        self.lost = False
        self.module: Any = self._make()

    def sequential(self, **functions: Callable[..., Any]) -> Sequential:
        return Sequential(*(Module(self, name, function) for name, function in functions.items()))

    @contextlib.contextmanager
    def _on(self, stream: Stream):
        before, self.stream = self.stream, stream
        yield
        self.stream = before

    def _make(self) -> Any:
        fake = self

        class Event:
            def __init__(self) -> None:
                self._hold = fake.hold

            def record(self, stream: Stream) -> None:
                fake.entered.release()

            def query(self) -> bool:
                if fake.lost:
                    error = RuntimeError("CUDA error: an illegal memory access was encountered")
                    error.error_code = 700  # type: ignore[attr-defined]
                    raise error
                return self._hold is None or self._hold.is_set()

            def synchronize(self) -> None:
                assert self._hold is None or self._hold.wait(60), "the test did not end the work"

        cuda = types.SimpleNamespace(
            Stream=Stream,
            Event=Event,
            is_available=lambda: bool(fake.gpus),
            device_count=lambda: fake.gpus,
            device=lambda index: contextlib.nullcontext(),
            stream=fake._on,
            current_stream=lambda: fake.stream,
            default_stream=lambda index: fake.default_stream,
            get_device_name=lambda index: "stand-in",
        )
        return types.SimpleNamespace(
            __version__="2.11",
            nn=types.SimpleNamespace(Module=Module, Sequential=Sequential),
            cuda=cuda,
            version=types.SimpleNamespace(cuda="13.0"),
            device=lambda kind, index: (kind, index),
            inference_mode=contextlib.nullcontext,
            from_numpy=Tensor,
            from_dlpack=lambda tensor: tensor,
            jit=types.SimpleNamespace(load=_load),
        )


def _load(path: str, map_location: str) -> Any:
    raise ValueError(f"The provided filename {path} does not exist")

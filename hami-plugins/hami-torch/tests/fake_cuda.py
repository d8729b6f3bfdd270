"""Fakes for the streams, tensors and graphs of CUDA: they log the calls and compute on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager

import pytest
import torch

from hami_torch import _streams

DEVICE = torch.device("cuda:0")


class FakeStream:
    """A stream that logs the waits."""

    def __init__(self, handle: int, log: list[str], device: torch.device = DEVICE) -> None:
        self.cuda_stream = handle
        self.device = device
        self._log = log
        self.idle = True

    def wait_stream(self, other: FakeStream) -> None:
        self._log.append(f"{self.cuda_stream} waits for {other.cuda_stream}")

    def wait_event(self, event: FakeEvent) -> None:
        self._log.append(f"{self.cuda_stream} waits for {event.recorded_on}")

    def query(self) -> bool:
        return self.idle

    def synchronize(self) -> None:
        self._log.append(f"the CPU waits for {self.cuda_stream}")


class FakeEvent:
    """An event, a point in the work of a stream."""

    def __init__(self, blocking: bool = False) -> None:
        self.recorded_on: int | None = None
        self._stream: FakeStream | None = None

    def record(self, stream: FakeStream) -> None:
        self._stream, self.recorded_on = stream, stream.cuda_stream

    def query(self) -> bool:
        return self._stream is None or self._stream.idle

    def synchronize(self) -> None:
        self._stream.synchronize()


class FakeTensor(torch.Tensor):
    """A tensor that claims to be on CUDA and logs the streams that it is recorded on."""

    is_cuda = True
    log: list[str]

    def record_stream(self, stream: FakeStream) -> None:
        self.log.append(f"memory kept for {stream.cuda_stream}")


class FakeGraph:
    """A captured graph; a replay runs the steps that the model added during the capture."""

    def __init__(self) -> None:
        self.steps: list[Callable[[], object]] = []

    def replay(self) -> None:
        for step in self.steps:
            step()


@pytest.fixture
def cuda(monkeypatch):
    """The streams of one CUDA device, with a log of the calls; stream 0 is the default stream."""

    class Fake:
        def __init__(self) -> None:
            self.log: list[str] = []
            self.default = FakeStream(0, self.log)
            self.default.idle = False
            self.current = self.default
            self.streams = 0
            self.capturing: FakeGraph | None = None
            self.captured = 0
            self.ended: list[tuple[object, ...]] = []  # arguments of calls that end failed captures

        def stream(self, device) -> FakeStream:
            self.streams = self.streams % 32 + 1
            return FakeStream(self.streams, self.log, device)

        def set_stream(self, stream: FakeStream) -> None:
            self.current = stream

        def tensor(self) -> FakeTensor:
            tensor = torch.zeros(1).as_subclass(FakeTensor)
            tensor.log = self.log
            return tensor

        def made(self, stream: FakeStream) -> FakeTensor:
            """Return a tensor that a backend made on the stream."""
            tensor = self.tensor()
            _streams.mark_stream(tensor, stream.cuda_stream)
            return tensor

        @contextmanager
        def graph(self, graph: FakeGraph, **options):
            self.capturing = graph
            self.captured += 1
            try:
                yield
            finally:
                self.capturing = None

    class Using:
        def __init__(self, stream: FakeStream) -> None:
            self.stream = stream

        def __enter__(self) -> None:
            self.before, fake.current = fake.current, self.stream

        def __exit__(self, *_: object) -> None:
            fake.current = self.before

    fake = Fake()
    monkeypatch.setattr(FakeTensor, "log", fake.log, raising=False)  # also of tensors that are made from one
    monkeypatch.setattr(torch.cuda, "Stream", fake.stream)
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "stream", Using)
    monkeypatch.setattr(torch.cuda, "set_stream", fake.set_stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: fake.current)
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: fake.default)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda.memory, "get_allocator_backend", lambda: "native")
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", lambda *which: fake.ended.append(which), raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: fake.current.cuda_stream, raising=False)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "graph", fake.graph)
    monkeypatch.setattr(_streams, "_idle", {})
    monkeypatch.setattr(_streams, "_leased", {})
    monkeypatch.setattr(_streams, "_known_streams", {})
    return fake

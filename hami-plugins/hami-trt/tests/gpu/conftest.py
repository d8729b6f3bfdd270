"""Fixtures of tests that need a GPU. Without one each test is skipped; `ci/gpu` runs them on a machine with a GPU."""

from __future__ import annotations

import ctypes
from typing import Any

import fake_tensorrt
import hami
import pytest
from hami_cuda import _driver
from hami_cuda.device import devices

from hami_trt import _tensorrt


@pytest.fixture(autouse=True)
def _gpu():
    if not devices() or hasattr(ctypes.CDLL(_driver.LIBRARY), "fake_launches"):
        pytest.skip("needs an NVIDIA driver and a GPU (ci/gpu runs this test on a machine with them)")


class FakeOnGpu(fake_tensorrt.Fake):
    """torch computes, on the stream of the call."""

    def compute(self, context: fake_tensorrt.IExecutionContext, stream_handle: int) -> None:
        import torch

        def array(shape: tuple[int, ...], dtype: str, address: int) -> Any:
            return torch.as_tensor(Memory(shape, dtype, address), device="cuda")

        with torch.cuda.stream(torch.cuda.ExternalStream(stream_handle)):
            given, outputs = context.arrays(array)
            if context.program is fake_tensorrt.PROGRAMS["double"]:
                torch.mul(given["x"], 2, out=outputs["y"])  # allocates nothing, so that it can be captured
            else:
                context.bound(array)()


class Memory:
    """Memory on the GPU, viewed by torch as a tensor."""

    def __init__(self, shape: tuple[int, ...], dtype: str, address: int) -> None:
        self.__cuda_array_interface__ = {"shape": shape, "typestr": dtype, "data": (address, False), "version": 2}


@pytest.fixture
def fake(monkeypatch):
    """Make the backends find the fake library, on the GPU; after the test check that it was not misused."""
    pytest.importorskip("torch", reason="torch, which computes for the fake library, is not installed")
    module = FakeOnGpu()
    library = _tensorrt.Library("tensorrt", module)
    monkeypatch.setattr(_tensorrt, "_load", lambda name: library)
    yield module
    assert module.misuse == []


@pytest.fixture
def pipe():
    """pipe("Backend", key=…) opens a pipe on the default device, a GPU."""
    opened = []

    def make(backend: str, **config):
        opened.append(hami.pipe({"backend": backend, **config}))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.fixture
def values():
    """values(tensor) copies a tensor on the device into an array."""
    with hami.pipe("hami-cuda::CpuTensor") as back:
        yield lambda tensor: hami.to_numpy(back({"data": tensor})["result"])

"""These tests need a GPU: without one each is skipped and says so. `ci/gpu` runs them all on a machine that has one."""

from __future__ import annotations

import fake_tensorrt
import hami
import pytest
import torch

from hami_trt import _tensorrt


@pytest.fixture(autouse=True)
def _gpu():
    if not torch.cuda.is_available():
        pytest.skip(f"needs a CUDA device; torch {torch.__version__} sees none (ci/gpu runs this where there is one)")
    torch.cuda.synchronize()
    yield
    torch.cuda.synchronize()


@pytest.fixture
def fake(monkeypatch):
    """The library that the backends find is the fake one, on the GPU; at the end no rule of it was broken."""
    module = fake_tensorrt.Fake(on_gpu=True)
    library = _tensorrt.Library("tensorrt", module)
    monkeypatch.setattr(_tensorrt, "_load", lambda name: library)
    yield module
    assert module.misuse == []


@pytest.fixture
def pipe():
    """pipe("Backend", key=…) -> an open pipe; the device is the default, a GPU."""
    opened = []

    def make(backend: str, **config):
        opened.append(hami.pipe({"backend": backend, **config}))
        return opened[-1]

    yield make
    for each in opened:
        each.close()

"""Fixtures of tests that need a GPU. Without one each test is skipped; `ci/gpu` runs them on a machine with a GPU."""

from __future__ import annotations

import fake_tensorrt
import hami
import pytest
import torch

from hami_trt import _tensorrt


@pytest.fixture(autouse=True)
def _gpu():
    if not torch.cuda.is_available():
        pytest.skip(f"needs a CUDA device; torch {torch.__version__} sees none (run ci/gpu on a machine with one)")
    torch.cuda.synchronize()
    yield
    torch.cuda.synchronize()


@pytest.fixture
def fake(monkeypatch):
    """Make the backends find the fake library, on the GPU; after the test check that it was not misused."""
    module = fake_tensorrt.Fake(on_gpu=True)
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

"""Tests that need a GPU. Without one they are skipped with a reason; `ci/gpu` runs them on a machine with a GPU."""

from __future__ import annotations

import hami
import pytest
import torch


@pytest.fixture(autouse=True)
def _gpu():
    if not torch.cuda.is_available():
        pytest.skip(
            f"needs a CUDA device; torch {torch.__version__} finds none (ci/gpu runs this test on a machine with a GPU)"
        )
    torch.cuda.synchronize()
    yield
    torch.cuda.synchronize()


@pytest.fixture
def pipe():
    """pipe("Backend", key=…) -> an open pipe; the device is the default, cuda."""
    opened = []

    def make(backend: str, **config):
        opened.append(hami.pipe({"backend": backend, **config}))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.fixture
def slow_work():
    """Keep the current stream busy for about 0.1 s, so that a reader that does not wait for it sees the old data."""
    return lambda: torch.cuda._sleep(200_000_000)

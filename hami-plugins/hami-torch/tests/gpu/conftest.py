"""These tests need a GPU: without one each is skipped and says so. `ci/gpu` runs them all on a machine that has one."""

from __future__ import annotations

import hami
import pytest
import torch


@pytest.fixture(autouse=True)
def _gpu():
    if not torch.cuda.is_available():
        pytest.skip(f"needs a CUDA device; torch {torch.__version__} sees none (ci/gpu runs this where there is one)")
    torch.cuda.synchronize()
    yield
    torch.cuda.synchronize()


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


@pytest.fixture
def slow_work():
    """Keep the current stream busy for a tenth of a second or so: who does not wait for it reads what was before."""
    return lambda: torch.cuda._sleep(200_000_000)

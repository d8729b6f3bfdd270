"""The fake driver: on a machine without a GPU, the backends run on it in this process."""

from __future__ import annotations

from typing import Any

import pytest
from native import fake_driver


@pytest.fixture
def fake() -> Any:
    """The fake driver, which the backends use"""
    library = fake_driver()
    if library is None:
        pytest.skip("this machine has an NVIDIA driver; tests/gpu run on it")
    return library


@pytest.fixture
def cuda() -> None:
    """A driver: that of this machine, or the fake one"""
    fake_driver()

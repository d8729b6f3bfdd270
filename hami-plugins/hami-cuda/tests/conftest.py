"""The fake driver: on a machine without a GPU, the backends run on it in this process."""

from __future__ import annotations

import ctypes
import functools
import tempfile
from pathlib import Path
from typing import Any

import pytest
from native import compiled

DRIVER = "libcuda.so.1"


@functools.cache
def fake_driver() -> Any:
    """Load the fake driver under the driver's name; skip the test on a machine with a driver."""
    try:
        ctypes.CDLL(DRIVER)
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="hami-cuda-fake-"))
        return ctypes.CDLL(str(compiled("fake_driver.cpp", folder, DRIVER)))
    return None


@pytest.fixture
def fake() -> Any:
    """The fake driver, which the backends use"""
    library = fake_driver()
    if library is None:
        pytest.skip("this machine has an NVIDIA driver; tests/gpu run on it")
    return library

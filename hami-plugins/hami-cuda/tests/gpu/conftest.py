"""Tests that need a GPU. Without one they are skipped with a reason; `ci/gpu` runs them on a machine with a GPU."""

from __future__ import annotations

import ctypes

import pytest


@pytest.fixture(autouse=True)
def _gpu():
    count = ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        pytest.skip("needs an NVIDIA driver and a GPU (ci/gpu runs this test on a machine with them)")
    if hasattr(driver, "fake_launches") or driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        pytest.skip("needs a GPU (ci/gpu runs this test on a machine with one)")

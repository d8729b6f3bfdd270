"""Devices and models of the tests."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from hami_accel import AccelModel, engine_of
from hami_accel.sim import SimDevice, SimModel

sys.path.append(str(Path(__file__).resolve().parents[3] / "tests" / "plugins"))  # together.py
ONE_BY_ONE = 1e-6  # max_time_per_fc so small that every call of a simulated model stays on its own


def x(*values: float) -> np.ndarray:
    return np.array([values or (1, 2, 3, 4)], np.float32)


@pytest.fixture
def virtual():
    """virtual(calls_us, device=…) returns a model in virtual time with one function-call per number."""
    models = []

    def load(*calls_us: float, name="net", device=None, n_task=8, **settings) -> AccelModel:
        device = device or SimDevice(clock="virtual", **settings)
        model = AccelModel(SimModel(name, calls_us), n_task, device=device, max_time_per_fc=ONE_BY_ONE)
        models.append(model)
        return model

    yield load
    for model in models:
        model.close()


class Gate:
    """A device in real time whose function-calls wait until the test opens the gate."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self._open = threading.Semaphore(0)
        self.device = SimDevice(on_call=self._call, abort=False)
        engine_of(self.device, call_timeout=None)

    def _call(self, name: str, segment: int, core: int) -> None:
        self.entered.release()
        assert self._open.acquire(timeout=60), "the test did not open the gate"

    def open(self, calls: int = 1) -> None:
        for _ in range(calls):
            self._open.release()


@pytest.fixture
def gate():
    made = Gate()
    yield made
    made.open(1000)

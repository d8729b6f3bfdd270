"""Fixtures: a fake of the library in place of the real one, engines for it, pipes that are closed after the test."""

from __future__ import annotations

import gc
from pathlib import Path

import fake_tensorrt
import hami
import pytest

from hami_trt import _tensorrt


@pytest.fixture
def fake(monkeypatch):
    """The library that the backends find is the fake one, on the CPU; at the end no rule of it was broken."""
    module = fake_tensorrt.Fake()
    library = _tensorrt.Library("tensorrt", module)
    library.devices = ("cpu",)
    monkeypatch.setattr(_tensorrt, "_load", lambda name: library)
    yield module
    if module.contexts or module.engines:  # an exception may hold them
        gc.collect()
    assert module.misuse == []


@pytest.fixture
def pipe():
    """pipe("Backend", key=…) -> an open pipe on the CPU."""
    opened = []

    def make(backend: str, **config):
        opened.append(hami.pipe({"backend": backend, "device": "cpu", **config}))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.fixture
def engine(tmp_path, fake):
    """engine(…) -> the path of an engine of the fake; the arguments are those of fake_tensorrt.serialized."""

    def write(name: str = "model.trt", **told) -> Path:
        path = tmp_path / name
        path.write_bytes(fake_tensorrt.serialized(**told))
        return path

    return write

"""Fixtures: a fake of the library, engines for it, and pipes that are closed after the test."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import fake_tensorrt
import hami
import pytest

from hami_trt import _tensorrt

require_library = _tensorrt.require_library
_tensorrt.require_library = lambda: None  # the fake replaces a library that is not installed


@pytest.fixture
def fake(monkeypatch):
    """Make the backends find the fake library, on the CPU; after the test check that it was not misused."""
    module = fake_tensorrt.Fake()
    library = _tensorrt.Library("tensorrt", module)
    library.device_types = ("cpu",)
    monkeypatch.setattr(_tensorrt, "_load", lambda name: library)
    yield module
    if module.contexts or module.engines:  # an exception can keep them alive
        gc.collect()
    assert module.misuse == []


@pytest.fixture
def without_libraries(monkeypatch):
    """The check for a library, in a process that has none."""
    for library in _tensorrt.LIBRARIES.values():
        for module in library.modules:
            monkeypatch.setitem(sys.modules, module, None)
    return require_library


@pytest.fixture
def pipe():
    """pipe("Backend", key=…) opens a pipe on the CPU."""
    opened = []

    def make(backend: str, **config):
        opened.append(hami.pipe({"backend": backend, "device": "cpu", **config}))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.fixture
def engine(tmp_path, fake):
    """engine(…) writes an engine of the fake and returns its path; arguments as for fake_tensorrt.serialized."""

    def write(name: str = "model.trt", **given) -> Path:
        path = tmp_path / name
        path.write_bytes(fake_tensorrt.serialized(**given))
        return path

    return write

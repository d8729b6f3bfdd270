"""Fixtures: a fake of the library on a fake driver, engines for it, and pipes that are closed after the test."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

import fake_tensorrt
import hami
import numpy as np
import pytest
from hami_model_check import findings

from hami_trt import _tensorrt

require_library = _tensorrt.require_library
_tensorrt.require_library = lambda: None  # the fake replaces a library that is not installed


@pytest.fixture(autouse=True)
def no_findings(monkeypatch, tmp_path):
    """Keep findings about engines for one test only."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(findings, "_in_memory", {})


CUDA_TESTS = Path(__file__).resolve().parents[2] / "hami-cuda" / "tests"


@pytest.fixture
def driver() -> Any:
    """The fake driver of the tests of hami-cuda: its device memory is that of the CPU"""
    if not CUDA_TESTS.is_dir():
        pytest.skip("needs the fake driver of hami-cuda's tests: a checkout of the repository")
    sys.path.append(str(CUDA_TESTS))
    try:
        from native import fake_driver
    finally:
        sys.path.remove(str(CUDA_TESTS))
    library = fake_driver()
    if library is None:
        pytest.skip("this machine has an NVIDIA driver; tests/gpu run on it")
    return library


@pytest.fixture
def fake(monkeypatch, driver):
    """Make the backends find the fake library; after the test check that it was not misused."""
    module = fake_tensorrt.Fake(driver=driver)
    library = _tensorrt.Library("tensorrt", module)
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


class OpenPipe:
    """A pipe whose results come back from the device as arrays."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._pipe = hami.pipe(config)
        self._back = hami.pipe({"backend": "hami-cuda::CpuTensor", "max": 1})

    def __call__(self, requests: Any) -> Any:
        try:
            return self._pipe(requests)
        finally:
            for request in requests if isinstance(requests, list) else [requests]:
                if "result" in request:
                    result = self._back({"data": request["result"]})["result"]
                    request["result"] = (
                        {name: hami.to_numpy(part) for name, part in result.items()}
                        if isinstance(result, dict)
                        else hami.to_numpy(result)
                    )

    def close(self) -> None:
        self._pipe.close()
        self._back.close()

    def __enter__(self) -> OpenPipe:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.fixture
def open_pipe(driver):
    """open_pipe(config) opens a pipe; its results are arrays."""
    return OpenPipe


@pytest.fixture
def pipe(driver):
    """pipe("Backend", key=…) opens a pipe; its results are arrays."""
    opened = []

    def make(backend: str, **config):
        opened.append(OpenPipe({"backend": backend, **config}))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.fixture
def on_device(driver):
    """on_device(array) copies an array to the device."""
    with hami.pipe("hami-cuda::GpuTensor") as move:
        yield lambda array: move({"data": np.asarray(array)})["result"]


@pytest.fixture
def engine(tmp_path, fake):
    """engine(…) writes an engine of the fake and returns its path; arguments as for fake_tensorrt.serialized."""

    def write(name: str = "model.trt", **given) -> Path:
        path = tmp_path / name
        path.write_bytes(fake_tensorrt.serialized(**given))
        return path

    return write

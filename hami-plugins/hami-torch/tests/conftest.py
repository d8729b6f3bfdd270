"""Fixtures: images with known pixels, their encoded files, and one-node pipes that are closed after the test."""

from __future__ import annotations

import io

import hami
import numpy as np
import pytest
import torch
from fake_cuda import cuda as cuda  # a fixture
from hami_model_check import findings
from PIL import Image


@pytest.fixture
def pipe():
    """pipe("Backend", key=…) -> an open pipe on the CPU, unless `device` says otherwise."""
    opened = []

    def make(backend: str, **config):
        opened.append(hami.pipe({"backend": backend, "device": "cpu", **config}))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.fixture(autouse=True)
def no_findings(monkeypatch, tmp_path):
    """Keep findings about models for one test only."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(findings, "_in_memory", {})


@pytest.fixture
def torch_compiles():
    """Skip if this torch has no torch.compile for this Python."""
    try:
        torch.compile(torch.nn.Identity(), backend="eager")(torch.ones(1, 2))
    except RuntimeError as error:
        pytest.skip(f"torch {torch.__version__} has no torch.compile here: {error}")


@pytest.fixture
def run(pipe):
    """run("Backend", params, data=…, other_request_keys=…) -> the request after the call."""

    def call(backend: str, params: dict | None = None, **request):
        return pipe(backend, **(params or {}))(request)

    return call


@pytest.fixture
def image() -> np.ndarray:
    """An RGB image H x W x C, 40 wide and 30 high, smooth enough to survive JPEG."""
    rows, columns = np.mgrid[0:30, 0:40]
    return np.dstack([rows * 8, columns * 6, 255 - rows * 4]).astype(np.uint8)


@pytest.fixture
def chw(image) -> torch.Tensor:
    """The image of the fixture `image` as a tensor C x H x W."""
    return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))


@pytest.fixture
def encode(image):
    """encode("JPEG", quality=…) -> the file's bytes."""

    def encode(format: str, **options) -> bytes:
        file = io.BytesIO()
        Image.fromarray(options.pop("pixels", image)).save(file, format, **options)
        return file.getvalue()

    return encode

"""Fixtures: one-node pipes that are closed after the test."""

from __future__ import annotations

import os
from pathlib import Path

import hami
import pytest
import torch
from fake_cuda import cuda as cuda  # a fixture
from hami_model_check import findings

import hami_torch

os.environ["HAMI_PLUGINS"] = "no:cuda"  # the bare names that hami-cuda owns mean the backends of this package
for file in Path(__file__).parent.rglob("*.py"):
    hami_torch.allow_factory(file.stem)


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

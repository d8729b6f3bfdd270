"""Helpers for tests that build engines with the real TensorRT-RTX, which needs no GPU to build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hami
import pytest

from hami_trt import _prepare
from hami_trt._build_options import BuildOptions
from hami_trt._prepare import PreparedEngine
from hami_trt._recipe import make_recipe
from hami_trt._tensorrt import find_library

try:
    RTX = find_library("tensorrt-rtx", "this test")
    MISSING = ""
except hami.ConfigError as error:
    RTX, MISSING = None, str(error)

needs_rtx = pytest.mark.skipif(RTX is None, reason=MISSING or "TensorRT-RTX is installed")


def prepare_engine(options: BuildOptions, cache: Path | None) -> PreparedEngine:
    """Build an engine for any GPU, as `hami compile` does."""
    return _prepare.prepare_engine(options, make_recipe(options, None), cache)


def options(model: Path, **given: Any) -> BuildOptions:
    assert RTX is not None
    return BuildOptions(model=model, library=RTX, owner="Owner", **given)

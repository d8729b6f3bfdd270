"""What the tests of building need: the real TensorRT-RTX, which builds on a machine without a GPU, and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hami
import pytest

from hami_trt import _engines
from hami_trt._engines import Found
from hami_trt._options import Options
from hami_trt._recipe import recipe_of
from hami_trt._tensorrt import find_library

try:
    RTX = find_library("tensorrt-rtx", "the tests")
    MISSING = ""
except hami.ConfigError as error:
    RTX, MISSING = None, str(error)

needs_rtx = pytest.mark.skipif(RTX is None, reason=MISSING or "TensorRT-RTX is there")


def engine_of(options: Options, cache: Path | None) -> Found:
    """The engine for whatever GPU, as `hami compile` makes it."""
    return _engines.engine_of(options, recipe_of(options, None), cache)


def options(model: Path, **given: Any) -> Options:
    return Options(model=model, library=RTX, owner="Owner", **given)

"""What the tests of building need: the real TensorRT-RTX, which builds on a machine without a GPU, and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hami
import pytest

from hami_trt._options import Options
from hami_trt._tensorrt import find_library

try:
    RTX = find_library("tensorrt-rtx", "the tests")
    MISSING = ""
except hami.ConfigError as error:
    RTX, MISSING = None, str(error)

needs_rtx = pytest.mark.skipif(RTX is None, reason=MISSING or "TensorRT-RTX is there")


def options(model: Path, **given: Any) -> Options:
    return Options(model=model, library=RTX, owner="Owner", **given)

"""A small detector in a folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from small_models import write_detector

sys.path.append(str(Path(__file__).resolve().parents[3] / "tests" / "plugins"))  # browsers.py, together.py


@pytest.fixture(scope="session")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ONNX file that finds red and blue squares; labels.txt is beside it."""
    return write_detector(tmp_path_factory.mktemp("model") / "squares.onnx")

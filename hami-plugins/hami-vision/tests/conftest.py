"""A small detector in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_models import write_detector


@pytest.fixture(scope="session")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ONNX file that finds red and blue squares; labels.txt is beside it."""
    return write_detector(tmp_path_factory.mktemp("model") / "squares.onnx")

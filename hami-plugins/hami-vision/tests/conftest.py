"""A small detector in a folder, and a browser."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from small_models import write_detector

sys.path.append(str(Path(__file__).resolve().parents[3] / "tests" / "plugins"))  # together.py

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ONNX file that finds red and blue squares; labels.txt is beside it."""
    return write_detector(tmp_path_factory.mktemp("model") / "squares.onnx")


@pytest.fixture(scope="session")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("Chromium is not installed (Debian: apt install chromium)")
    with api.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=program, args=["--no-sandbox"])  # its sandbox refuses root
        yield browser
        browser.close()

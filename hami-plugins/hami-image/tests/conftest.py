"""Fixtures: pictures of scikit-image, and one-backend pipes that are closed after the test."""

from __future__ import annotations

from pathlib import Path

import cv2
import hami
import numpy as np
import pytest
import skimage

PAGE = Path(skimage.__file__).parent / "data" / "page.png"


@pytest.fixture
def page() -> bytes:
    return PAGE.read_bytes()


@pytest.fixture
def picture() -> np.ndarray:
    """A BGR picture, 40 wide and 30 high, whose every pixel is known."""
    rows, columns = np.mgrid[0:30, 0:40]
    return np.dstack([rows * 8, columns * 6, rows + columns]).astype(np.uint8)


@pytest.fixture
def run():
    """run("Backend", data=…, other_request_keys=…, params={…}) -> the request afterwards."""
    pipes = []

    def call(backend: str, params: dict | None = None, **request):
        pipe = hami.pipe({"backend": backend, **(params or {})})
        pipes.append(pipe)
        return pipe(request)

    yield call
    for pipe in pipes:
        pipe.close()


@pytest.fixture
def encode(picture):
    def encode(extension: str, *flags: int) -> bytes:
        done, data = cv2.imencode(extension, picture, flags)
        assert done
        return data.tobytes()

    return encode

"""Fixtures: test images, and pipes of one backend that are closed after the test."""

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
def image() -> np.ndarray:
    """A BGR image, 40 pixels wide and 30 high, with known pixels."""
    rows, columns = np.mgrid[0:30, 0:40]
    return np.dstack([rows * 8, columns * 6, rows + columns]).astype(np.uint8)


@pytest.fixture
def run():
    """run("Backend", {parameters}, data=…, other_key=…) builds a pipe, sends one request and returns it.

    A `result` that is a hami.Tensor is returned as an array.
    """
    pipes = []

    def run(backend: str, params: dict | None = None, **request):
        pipe = hami.pipe({"backend": backend, **(params or {})})
        pipes.append(pipe)
        request = pipe(request)
        if isinstance(request["result"], hami.Tensor):
            request["result"] = hami.to_numpy(request["result"])
        return request

    yield run
    for pipe in pipes:
        pipe.close()


@pytest.fixture
def encode(image):
    def encode(extension: str, *flags: int) -> bytes:
        done, data = cv2.imencode(extension, image, flags)
        assert done
        return data.tobytes()

    return encode

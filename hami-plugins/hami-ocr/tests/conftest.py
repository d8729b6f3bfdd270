"""Fixtures: a scanned page, the text that rapidocr itself recognises, and one pipe `ocr` for all tests."""

from __future__ import annotations

from pathlib import Path

import cv2
import hami
import numpy as np
import pytest
import skimage

PAGE = Path(skimage.__file__).parent / "data" / "page.png"


@pytest.fixture(scope="session")
def page_file() -> Path:
    return PAGE


@pytest.fixture(scope="session")
def page(page_file) -> np.ndarray:
    return cv2.imdecode(np.fromfile(page_file, np.uint8), cv2.IMREAD_COLOR)


@pytest.fixture(scope="session")
def ocr():
    with hami.pipe("ocr") as pipe:
        yield pipe


@pytest.fixture(scope="session")
def rapidocr_lines():
    """rapidocr_lines(image) returns the lines that RapidOCR()(image) recognises."""
    from rapidocr import RapidOCR

    engine = RapidOCR(params={"Global.log_level": "error"})

    def lines(image) -> list[dict]:
        output = engine(image)
        if output.txts is None:
            return []
        return [
            {"text": text, "score": score, "box": box.tolist()}
            for text, score, box in zip(output.txts, output.scores, output.boxes, strict=True)
        ]

    return lines


@pytest.fixture(scope="session")
def as_png():
    def as_png(image: np.ndarray) -> bytes:
        done, data = cv2.imencode(".png", image)
        assert done
        return data.tobytes()

    return as_png

"""Make the sample of the package: a video of squares that walk, and the model that finds them. Run it as a program.

Five red squares are people: three go from left to right, and two from right to left. A blue one is not.
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from small_models import SIZE, SQUARE, picture, write_detector

from hami_vision.sinks import VideoWriter

FRAMES, RATE, SCALE = 64, 25, 5
WALKS = (  # colour, first frame, y, direction
    *(("red", first, 0, 1) for first in (0, 14, 28)),
    *((colour, first, 44, -1) for colour, first in (("red", 4), ("blue", 18), ("red", 32))),
)
IN, OUT = 3, 2  # over the middle, of the red ones


def frame(index: int) -> NDArray[np.uint8]:
    """Return a frame. A square walks 3 pixels each, from its first frame on; two are never close."""
    squares = []
    for colour, first, y, direction in WALKS:
        x = -SQUARE + 3 * (index - first)
        if index >= first and x < SIZE:
            squares.append((colour, x if direction > 0 else SIZE - SQUARE - x, y))
    return cv2.resize(picture(*squares), (SCALE * SIZE, SCALE * SIZE), interpolation=cv2.INTER_NEAREST)


if __name__ == "__main__":
    folder = Path(__file__).resolve().parent.parent / "python" / "hami_vision" / "sample"
    write_detector(folder / "squares.onnx")
    (folder / "labels.txt").rename(folder / "squares.txt")
    with VideoWriter(folder / "walk.webm", RATE) as video:
        for i in range(FRAMES):
            video.write(frame(i))

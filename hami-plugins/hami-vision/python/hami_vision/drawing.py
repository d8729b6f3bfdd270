"""draw, annotate and blur: detections on a copy of a picture.

>>> import numpy as np
>>> from hami_vision import Detections
>>> from hami_vision.drawing import draw
>>> found = Detections(boxes=[[8, 8, 24, 24]], scores=[0.5], classes=[0], names=["cat"])
>>> draw(found, np.zeros((32, 32, 3), np.uint8)).any()
np.True_
"""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from hami_vision.detections import NO_ID, Detections

_GOLDEN_ANGLE = 137.508  # degrees: neighbouring numbers get colours that are far apart
_MASK_SHARE = 0.4  # of the colour in a mask


def colour_of(number: int) -> tuple[int, int, int]:
    """Return a colour for a class or an id."""
    hue = number * _GOLDEN_ANGLE % 360 / 2
    blue, green, red = cv2.cvtColor(np.array([[[hue, 200, 230]]], np.uint8), cv2.COLOR_HSV2BGR)[0, 0].tolist()
    return blue, green, red


def draw(found: Detections, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a copy of a picture with boxes, masks, key points, names, scores and ids.

    Raises:
        ValueError: The picture is not uint8, H x W x 3.
    """
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise ValueError(f"draw takes a picture of uint8, H x W x 3, got {image.dtype} {image.shape}")
    drawn: NDArray[np.uint8] = image.copy()
    width = max(1, round(min(image.shape[:2]) / 300))
    for i in np.argsort(found.scores, kind="stable").tolist():  # the best on top
        if not np.isfinite(found.boxes[i]).all():
            continue
        track = NO_ID if found.ids is None else int(found.ids[i])
        colour = colour_of(int(found.classes[i]) if track == NO_ID else track)
        if found.masks is not None:
            mask = found.masks[i]
            drawn[mask] = (drawn[mask] * (1 - _MASK_SHARE) + np.array(colour) * _MASK_SHARE).astype(np.uint8)
        corners = _corners(found, i)
        cv2.polylines(drawn, [corners], True, colour, width)
        text = f"{found.name_of(i)} {found.scores[i]:.2f}"
        if track != NO_ID:
            text = f"#{track} {text}"
        _write(drawn, text, (int(corners[:, 0].min()), int(corners[:, 1].min())), colour, width)
        if found.keypoints is not None:
            for x, y, score in found.keypoints[i].tolist():
                if score > 0.5 and math.isfinite(x + y):
                    cv2.circle(drawn, _pixel(x, y), 2 * width, colour, -1)
    return drawn


def annotate(result: Any, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a copy of a picture with a result: Detections, or the dict of CountObjects with its counts."""
    counts = result if isinstance(result, dict) else {}
    found = counts.get("detections", result)
    drawn = draw(found, image) if isinstance(found, Detections) else image.copy()
    width = max(1, round(min(image.shape[:2]) / 300))
    texts = [f"{name}: in {each['in']}, out {each['out']}" for name, each in counts.get("lines", {}).items()]
    texts += [f"{name}: {each['inside']} inside" for name, each in counts.get("zones", {}).items()]
    for row, text in enumerate(texts, 1):
        _write(drawn, text, (0, 20 * width * row), (255, 255, 255), width)
    return drawn


def blur(found: Detections, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a copy of a picture in which the objects cannot be recognised: a mosaic of at most 6 x 6 blurred tiles.

    `blur(found.of_class("face"), image)` blurs those of one class.
    """
    blurred: NDArray[np.uint8] = image.copy()
    for part in found.crop(blurred):
        if part.size:
            tiles = cv2.resize(part, (min(6, part.shape[1]), min(6, part.shape[0])), interpolation=cv2.INTER_AREA)
            part[:] = cv2.resize(tiles, (part.shape[1], part.shape[0])).reshape(part.shape)
    return blurred


def _corners(found: Detections, i: int) -> NDArray[np.int32]:
    x1, y1, x2, y2 = found.boxes[i].tolist()
    corners = np.array([[x1, y1], [x2, y1], [x2, y2], [x1, y2]])
    if found.angles is not None:
        centre, angle = corners.mean(0), float(found.angles[i])
        turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
        corners = (corners - centre) @ turn + centre
    return np.array([_pixel(x, y) for x, y in corners.tolist()], np.int32)


def _pixel(x: float, y: float) -> tuple[int, int]:
    limit = 32_000.0  # OpenCV draws with coordinates of 16 bits
    return round(max(-limit, min(limit, x))), round(max(-limit, min(limit, y)))


def _write(image: NDArray[Any], text: str, at: tuple[int, int], colour: tuple[int, int, int], width: int) -> None:
    scale = 0.4 * width
    (text_width, text_height), _ = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, scale, width)
    x = max(0, at[0])
    y = max(text_height + 4, at[1])
    cv2.rectangle(image, (x, y - text_height - 4), (x + text_width, y), colour, -1)
    cv2.putText(image, text, (x, y - 2), cv2.FONT_HERSHEY_SIMPLEX, scale, (0, 0, 0), width)

"""CropLines: crops the lines that DetectText found."""

from __future__ import annotations

from typing import Any

import hami
import numpy as np

from hami_ocr._inputs import data_of, describe, field_of, is_image
from hami_ocr._rapidocr import crop_lines

_REQUIREMENT = 'CropLines: "data" must be a result of DetectText (a dict with "image", "boxes" and "page_boxes")'


class CropLines(hami.Backend):
    """Crop the lines that DetectText found and level them.

    data: a result of DetectText
    result: list of lines in reading order, each {"image", "ratio", "box"}

    image: the cropped line, H x W x 3, uint8, BGR. ratio: the width / height to which the line is padded for
    recognition. box: the four corners [[x, y], …] in pixels of the page, clockwise from the top left corner. FanOut[X]
    runs X on each line.
    """

    max = 1
    thread = "concurrent"
    lightweight = True

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            detected = data_of(item, "CropLines")
            image, boxes, page_boxes = (
                field_of(detected, name, _REQUIREMENT) for name in ("image", "boxes", "page_boxes")
            )
            _check(image, boxes, page_boxes)
            item["result"] = [
                {"image": line.image, "ratio": line.ratio, "box": box.tolist()}
                for line, box in zip(crop_lines(image, boxes), page_boxes, strict=True)
            ]


def _check(image: Any, boxes: Any, page_boxes: Any) -> None:
    if not is_image(image) or not image.size:
        raise hami.DataTypeError(f'{_REQUIREMENT}; "image" must be a uint8 image, got {describe(image)}')
    shape = (*np.shape(boxes)[:1], 4, 2)
    for name, corners in (("boxes", boxes), ("page_boxes", page_boxes)):
        is_array = isinstance(corners, np.ndarray) and corners.dtype.kind == "f" and corners.shape == shape
        if not is_array or not np.isfinite(corners).all():
            raise hami.DataTypeError(
                f'{_REQUIREMENT}; "{name}" must be n x 4 x 2 finite coordinates, got {describe(corners)}'
            )

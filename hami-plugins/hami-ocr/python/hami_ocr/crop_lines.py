"""CropLines: the lines of a page as pictures of their own."""

from __future__ import annotations

from typing import Any

import hami
import numpy as np

from hami_ocr._data import data_of, field_of, is_picture, shown
from hami_ocr._rapidocr import cut_lines

_EXPECTED = 'what DetectText gives, a dict with "image", "boxes" and "page_boxes"'


class CropLines(hami.Backend):
    """Cut the boxes of DetectText out of the page and turn them level.

    `result`: a list of {"image", "ratio", "box"}, in reading order: the line as a picture, the width to height it is
    padded to when it is read, its corners in the page [[x, y], …] from the top left one clockwise. FanOut[X] runs X on
    each.
    """

    max = 1
    thread = "concurrent"

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            found = data_of(item, "CropLines")
            image, boxes, page_boxes = (
                field_of(found, name, "CropLines", _EXPECTED) for name in ("image", "boxes", "page_boxes")
            )
            _check(image, boxes, page_boxes)
            item["result"] = [
                {"image": line.image, "ratio": line.ratio, "box": box.tolist()}
                for line, box in zip(cut_lines(image, boxes), page_boxes, strict=True)
            ]


def _check(image: Any, boxes: Any, page_boxes: Any) -> None:
    if not is_picture(image) or not image.size:
        raise hami.DataTypeError(f'CropLines takes {_EXPECTED}; "image" is a picture, got {shown(image)}')
    wanted = (*np.shape(boxes)[:1], 4, 2)
    for name, corners in (("boxes", boxes), ("page_boxes", page_boxes)):
        is_array = isinstance(corners, np.ndarray) and corners.dtype.kind == "f" and corners.shape == wanted
        if not is_array or not np.isfinite(corners).all():
            expected = f'"{name}" has the finite corners of each line, n x 4 x 2'
            raise hami.DataTypeError(f"CropLines takes {_EXPECTED}; {expected}, got {shown(corners)}")

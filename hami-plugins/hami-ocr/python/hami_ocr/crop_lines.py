"""CropLines: the lines of a page as pictures of their own."""

from __future__ import annotations

from typing import Any

import hami

from hami_ocr._parameters import data_of, field_of
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
            item["result"] = [
                {"image": line.image, "ratio": line.ratio, "box": box.tolist()}
                for line, box in zip(cut_lines(image, boxes), page_boxes, strict=True)
            ]

"""DetectText: finds the lines of text on a page."""

from __future__ import annotations

import math
from typing import Annotated, Any

import hami

from hami_ocr._inputs import check_score, data_of, describe, is_image
from hami_ocr._model_backend import ModelBackend
from hami_ocr._rapidocr import Detector, to_bgr


class DetectText(ModelBackend):
    """Find the lines of text on a page.

    data: uint8 image H x W x 3 (BGR), H x W x 4 (BGRA) or H x W (gray)
    result: {"image", "boxes", "page_boxes"}, for CropLines

    image: the page as prepared for recognition. boxes: n x 4 x 2, the corners of each line in that image, in pixels and
    in reading order. page_boxes: the same corners in the original page. A page without text has no boxes.
    """

    max = 1

    box_thresh: Annotated[float | None, "lowest accepted score of a box; default: that of rapidocr"] = None
    unclip_ratio: Annotated[float | None, "factor by which boxes are enlarged; default: that of rapidocr"] = None

    _detect: Detector | None = None

    def init(self, options: Any) -> None:
        check_score(self.box_thresh, "box_thresh", "DetectText")
        if self.unclip_ratio is not None and not 0 < self.unclip_ratio < math.inf:
            raise hami.ConfigError(f'DetectText: "unclip_ratio" must be a number above 0, got {self.unclip_ratio}')
        self._detect = Detector("DetectText", self.threads, self.provider, self.box_thresh, self.unclip_ratio)

    def forward(self, batch: list[Any]) -> None:
        assert self._detect is not None, "forward after close"
        for item in batch:
            item["result"] = self._detect(to_bgr(_image_of(item)))._asdict()

    def close(self) -> None:
        self._detect = None


def _image_of(item: Any) -> Any:
    data = data_of(item, "DetectText")
    if not is_image(data):
        raise hami.DataTypeError(
            f'DetectText: "data" must be an image (uint8 array H x W x 3, as DecodeMat returns), got {describe(data)}'
        )
    if data.size == 0:
        raise hami.RequestError(f"DetectText: the image is empty, its shape is {list(data.shape)}")
    return data

"""DetectText: where on a page lines of text are."""

from __future__ import annotations

import math
from typing import Annotated, Any

import hami
import numpy as np

from hami_ocr._data import data_of, is_picture, shown
from hami_ocr._parameters import RunsModel, check_score
from hami_ocr._rapidocr import Detector, as_bgr


class DetectText(RunsModel):
    """Find the lines of a page. `data`: a uint8 picture H x W x 3 (BGR), H x W x 4 (BGRA) or H x W (gray).

    `result`: {"image", "boxes", "page_boxes"}: the page as prepared for reading, the corners of each line in it
    (n x 4 x 2, reading order), and the same corners in the page that came in. No text: no boxes.
    """

    max = 1

    box_thresh: Annotated[float | None, "score a box needs; if not said, rapidocr's"] = None
    unclip_ratio: Annotated[float | None, "how far boxes are widened; if not said, rapidocr's"] = None

    _detect: Detector | None = None

    def init(self, options: Any) -> None:
        check_score(self.box_thresh, "box_thresh", "DetectText")
        if self.unclip_ratio is not None and not 0 < self.unclip_ratio < math.inf:
            raise hami.ConfigError(f'DetectText: "unclip_ratio" is a number above 0, got {self.unclip_ratio}')
        self._detect = Detector("DetectText", self.threads, self.provider, self.box_thresh, self.unclip_ratio)

    def forward(self, batch: list[Any]) -> None:
        assert self._detect is not None, "forward after close"
        for item in batch:
            item["result"] = self._detect(as_bgr(_picture_of(item)))._asdict()

    def close(self) -> None:
        self._detect = None


def _picture_of(item: Any) -> np.ndarray:
    data = data_of(item, "DetectText")
    if not is_picture(data):
        raise hami.DataTypeError(
            f"DetectText takes a picture (a uint8 array H x W x 3, as DecodeMat gives), got {shown(data)}"
        )
    if data.size == 0:
        raise hami.RequestError(f"DetectText: the picture is empty, its shape is {list(data.shape)}")
    return data

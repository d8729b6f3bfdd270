"""OrientText: rotates lines that are upside down."""

from __future__ import annotations

from typing import Any

from hami.batching import group_requests

from hami_ocr._inputs import line_of
from hami_ocr._model_backend import ModelBackend
from hami_ocr._rapidocr import Orienter


class OrientText(ModelBackend):
    """Rotate a line by 180 degrees if it is upside down.

    data: a line of CropLines, {"image", "ratio", "box"}
    result: the same line with the rotated image
    """

    _orient: Orienter | None = None

    def init(self, options: Any) -> None:
        self._orient = Orienter("OrientText", self.threads, self.provider)

    def forward(self, batch: list[Any]) -> None:
        assert self._orient is not None, "forward after close"
        for items, lines in group_requests(batch, lambda item: line_of(item, "OrientText")):
            images = self._orient([line["image"] for line in lines])
            for item, line, image in zip(items, lines, images, strict=True):
                item["result"] = {**line, "image": image}

    def close(self) -> None:
        self._orient = None

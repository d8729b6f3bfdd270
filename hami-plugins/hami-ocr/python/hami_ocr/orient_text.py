"""OrientText: lines the right way up."""

from __future__ import annotations

from typing import Any

from hami_ocr._data import line_of
from hami_ocr._parameters import RunsModel
from hami_ocr._rapidocr import Orienter


class OrientText(RunsModel):
    """Turn a line of CropLines by half a turn if it stands on its head; `result` is a line like `data`."""

    _orient: Orienter | None = None

    def init(self, options: Any) -> None:
        self._orient = Orienter("OrientText", self.threads, self.provider)

    def forward(self, batch: list[Any]) -> None:
        assert self._orient is not None, "forward after close"
        lines = [line_of(item, "OrientText") for item in batch]
        images = self._orient([line["image"] for line in lines])
        for item, line, image in zip(batch, lines, images, strict=True):
            item["result"] = {**line, "image": image}

    def close(self) -> None:
        self._orient = None

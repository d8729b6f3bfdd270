"""RecognizeText: what a line says."""

from __future__ import annotations

from typing import Any

from hami_ocr._data import line_of
from hami_ocr._parameters import RunsModel
from hami_ocr._rapidocr import Line, Recognizer


class RecognizeText(RunsModel):
    """Read a line of CropLines; `result`: {"text", "score", "box"}.

    The lines of a batch go through the model one after the other: on a CPU that is as fast as all at once, and lines
    of different widths need no common padding.
    """

    _read: Recognizer | None = None

    def init(self, options: Any) -> None:
        self._read = Recognizer("RecognizeText", self.threads, self.provider)

    def forward(self, batch: list[Any]) -> None:
        assert self._read is not None, "forward after close"
        for item in batch:
            line = line_of(item, "RecognizeText")
            text, score = self._read(Line(line["image"], line["ratio"]))
            item["result"] = {"text": text, "score": score, "box": line["box"]}

    def close(self) -> None:
        self._read = None

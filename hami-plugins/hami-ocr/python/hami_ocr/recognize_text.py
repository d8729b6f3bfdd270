"""RecognizeText: recognises the text of a line."""

from __future__ import annotations

from typing import Any

from hami_ocr._inputs import line_of
from hami_ocr._model_backend import ModelBackend
from hami_ocr._rapidocr import Line, Recognizer


class RecognizeText(ModelBackend):
    """Recognise the text of a line.

    data: a line of CropLines, {"image", "ratio", "box"}
    result: {"text", "score", "box"}; score from 0 to 1

    The lines of a batch run one after the other. On a CPU this is as fast as one run for all of them, and lines with
    different widths need no common padding.
    """

    _recognize: Recognizer | None = None

    def init(self, options: Any) -> None:
        self._recognize = Recognizer("RecognizeText", self.threads, self.provider)

    def forward(self, batch: list[Any]) -> None:
        assert self._recognize is not None, "forward after close"
        for item in batch:
            line = line_of(item, "RecognizeText")
            text, score = self._recognize(Line(line["image"], line["ratio"]))
            item["result"] = {"text": text, "score": score, "box": line["box"]}

    def close(self) -> None:
        self._recognize = None

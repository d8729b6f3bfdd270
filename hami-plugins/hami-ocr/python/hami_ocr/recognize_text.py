"""RecognizeText: what a line says."""

from __future__ import annotations

from typing import Any

from hami_ocr._parameters import RunsModel, data_of, field_of
from hami_ocr._rapidocr import Line, Recognizer

_EXPECTED = 'a line of CropLines, a dict with "image", "ratio" and "box"'


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
            line = data_of(item, "RecognizeText")
            image, ratio, box = (field_of(line, name, "RecognizeText", _EXPECTED) for name in ("image", "ratio", "box"))
            text, score = self._read(Line(image, ratio))
            item["result"] = {"text": text, "score": score, "box": box}

    def close(self) -> None:
        self._read = None

"""GatherLines: of the lines that were read, those worth keeping."""

from __future__ import annotations

from numbers import Real
from typing import Annotated, Any

import hami

from hami_ocr._data import data_of, field_of, shown
from hami_ocr._parameters import check_score
from hami_ocr._rapidocr import text_score


class GatherLines(hami.Backend):
    """Drop lines without text and those below `text_score`; the order stays.

    `data` and `result`: a list of {"text", "score", "box"}.
    """

    max = 1
    thread = "concurrent"

    text_score: Annotated[float | None, "score from 0 to 1 a line needs; if not said, rapidocr's"] = None

    def init(self, options: Any) -> None:
        check_score(self.text_score, "text_score", "GatherLines")
        self._least = text_score() if self.text_score is None else self.text_score

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            lines = data_of(item, "GatherLines")
            if not isinstance(lines, (list, tuple)):
                raise hami.DataTypeError(f"GatherLines takes a list of lines, got {type(lines).__name__}")
            item["result"] = [line for line in lines if self._keeps(line)]

    def _keeps(self, line: Any) -> bool:
        expected = 'lines of RecognizeText, dicts with "text", "score" and "box"'
        text, score = (field_of(line, name, "GatherLines", expected) for name in ("text", "score"))
        if not isinstance(text, str) or not isinstance(score, Real):
            raise hami.DataTypeError(
                f"GatherLines takes {expected}: a str and a number, got {shown(text)} and {shown(score)}"
            )
        return bool(text.strip()) and score >= self._least

"""GatherLines: removes empty and uncertain lines from the recognised lines of a page."""

from __future__ import annotations

from typing import Annotated, Any

import hami

from hami_ocr._inputs import check_score, data_of, describe, field_of, is_real
from hami_ocr._rapidocr import default_text_score

_REQUIREMENT = 'GatherLines: each line must be a result of RecognizeText (a dict with "text", "score" and "box")'


class GatherLines(hami.Backend):
    """Remove lines without text and lines with a score below `text_score`.

    data: list of {"text", "score", "box"}, the results of RecognizeText
    result: list of the remaining lines, in the same order
    """

    max = 1
    thread = "concurrent"
    lightweight = True

    text_score: Annotated[float | None, "lowest accepted score of a line, 0 to 1; default: that of rapidocr"] = None

    def init(self, options: Any) -> None:
        check_score(self.text_score, "text_score", "GatherLines")
        self._min_score = default_text_score() if self.text_score is None else self.text_score

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            lines = data_of(item, "GatherLines")
            if not isinstance(lines, (list, tuple)):
                raise hami.DataTypeError(f'GatherLines: "data" must be a list of lines, got {type(lines).__name__}')
            item["result"] = [line for line in lines if self._is_kept(line)]

    def _is_kept(self, line: Any) -> bool:
        text, score = (field_of(line, name, _REQUIREMENT) for name in ("text", "score"))
        if not isinstance(text, str) or not is_real(score):
            raise hami.DataTypeError(
                f'{_REQUIREMENT}; "text" must be a str and "score" a number, got {describe(text)} and {describe(score)}'
            )
        return bool(text.strip()) and bool(score >= self._min_score)

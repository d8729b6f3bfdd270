"""LetterBoxMat: to an exact size with the aspect kept and equal borders on both sides."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from hami_image._mat import mat_of
from hami_image._resize import Resizer


class LetterBoxMat(Resizer):
    """Resize a picture into `width` x `height` with its aspect kept, centred, the rest filled with `pad`.

    Writes `letter_box` into the request: {"scale", "left", "top"}. A point (x, y) of the result is
    ((x - left) / scale, (y - top) / scale) in the picture that came in.
    A side that would be less than a pixel takes one: cut what is mapped back at the edges of that picture.
    """

    pad: Annotated[int, "value of the border, for every channel"] = 114

    def apply(self, item: Any) -> np.ndarray:
        fitted, scale = self.fit(mat_of(item, "LetterBoxMat"))
        spare_rows, spare_columns = self.height - fitted.shape[0], self.width - fitted.shape[1]
        top, left = spare_rows // 2, spare_columns // 2
        item["letter_box"] = {"scale": scale, "left": left, "top": top}
        return self.border(fitted, top, spare_rows - top, left, spare_columns - left, self.pad)

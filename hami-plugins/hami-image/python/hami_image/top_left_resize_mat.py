"""TopLeftResizeMat: to an exact size with the aspect kept, the picture in the top left corner."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from hami_image._mat import mat_of
from hami_image._resize import Resizer


class TopLeftResizeMat(Resizer):
    """Resize a picture into `width` x `height` with its aspect kept; `pad` fills the right and the bottom.

    Writes `scale` into the request: a point (x, y) of the result is (x / scale, y / scale) in what came in.
    A side that would be less than a pixel takes one: cut what is mapped back at the edges of that picture.
    """

    pad: Annotated[int, "value of the border, for every channel"] = 0

    def apply(self, item: Any) -> np.ndarray:
        fitted, scale = self.fit(mat_of(item, "TopLeftResizeMat"))
        item["scale"] = scale
        bottom, right = self.height - fitted.shape[0], self.width - fitted.shape[1]
        return self.border(fitted, 0, bottom, 0, right, self.pad)

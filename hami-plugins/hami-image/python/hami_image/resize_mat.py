"""ResizeMat: to an exact size, whatever that does to the aspect."""

from __future__ import annotations

from typing import Any

import numpy as np

from hami_image._mat import mat_of
from hami_image._resize import Resizer


class ResizeMat(Resizer):
    """Resize a picture to `width` x `height`; the aspect is not kept."""

    def apply(self, item: Any) -> np.ndarray:
        return self.resize(mat_of(item, "ResizeMat"), self.width, self.height)

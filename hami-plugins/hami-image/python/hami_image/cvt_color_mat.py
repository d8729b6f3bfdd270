"""CvtColorMat: from one order of channels to another."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import cv2
import numpy as np

from hami_image._mat import OneByOne, mat_of

_CONVERSIONS: dict[tuple[object, ...], int] = {  # (channels of the picture, what they are, what is wanted)
    (1, "bgr"): cv2.COLOR_GRAY2BGR,
    (1, "rgb"): cv2.COLOR_GRAY2RGB,
    (3, "bgr", "rgb"): cv2.COLOR_BGR2RGB,
    (3, "rgb", "bgr"): cv2.COLOR_RGB2BGR,
    (3, "bgr", "gray"): cv2.COLOR_BGR2GRAY,
    (3, "rgb", "gray"): cv2.COLOR_RGB2GRAY,
    (4, "bgr", "bgr"): cv2.COLOR_BGRA2BGR,
    (4, "bgr", "rgb"): cv2.COLOR_BGRA2RGB,
    (4, "rgb", "bgr"): cv2.COLOR_RGBA2BGR,
    (4, "rgb", "rgb"): cv2.COLOR_RGBA2RGB,
    (4, "bgr", "gray"): cv2.COLOR_BGRA2GRAY,
    (4, "rgb", "gray"): cv2.COLOR_RGBA2GRAY,
}


class CvtColorMat(OneByOne):
    """Convert a picture's colors to `color`; gray pictures (one channel) and an alpha channel are recognised.

    Three channels cannot tell their order, `source` does; the result has no alpha; gray is H x W.
    """

    color: Annotated[Literal["rgb", "bgr", "gray"], "what the result has"]
    source: Annotated[Literal["bgr", "rgb"], "what a picture of three or four channels has; DecodeMat gives bgr"] = (
        "bgr"
    )

    def apply(self, item: Any) -> np.ndarray:
        mat = mat_of(item, "CvtColorMat")
        channels = 1 if mat.ndim == 2 else mat.shape[2]
        if channels == 1:
            if self.color == "gray":
                return mat.reshape(mat.shape[:2])
            return cv2.cvtColor(mat, _CONVERSIONS[1, self.color])
        if channels == 3 and self.color == self.source:
            return mat
        return cv2.cvtColor(mat, _CONVERSIONS[channels, self.source, self.color])

"""The size and interpolation parameters that all resizing backends have."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import cv2
import hami
import numpy as np

from hami_image._mat import OneByOne

INTERPOLATIONS = {
    "nearest": cv2.INTER_NEAREST,
    "linear": cv2.INTER_LINEAR,
    "cubic": cv2.INTER_CUBIC,
    "area": cv2.INTER_AREA,
    "lanczos": cv2.INTER_LANCZOS4,
}


class Resizer(OneByOne):
    """Base of the resizing backends: `width` x `height` is the size of the result."""

    width: Annotated[int, "width of the result in pixels"]
    height: Annotated[int, "height of the result in pixels"]
    interpolation: Annotated[Literal["nearest", "linear", "cubic", "area", "lanczos"], "how pixels are computed"] = (
        "linear"
    )

    def init(self, options: Any) -> None:
        for name in ("width", "height"):
            value = getattr(self, name)
            if not 1 <= value <= 32767:  # what OpenCV's fixed-point resize can address
                raise hami.ConfigError(f'{type(self).__name__}: "{name}" is from 1 to 32767, got {value}')

    def resize(self, mat: np.ndarray, width: int, height: int) -> np.ndarray:
        if mat.shape[:2] == (height, width):
            return mat
        resized = cv2.resize(mat, (width, height), interpolation=INTERPOLATIONS[self.interpolation])
        return resized.reshape(height, width, *mat.shape[2:])  # OpenCV drops an axis of one channel

    def fit(self, mat: np.ndarray) -> tuple[np.ndarray, float]:
        """Resize to the largest size with the same aspect that fits; return it and the factor."""
        height, width = mat.shape[:2]
        scale = min(self.width / width, self.height / height)
        fitted = self.resize(
            mat,
            min(self.width, max(1, round(width * scale))),
            min(self.height, max(1, round(height * scale))),
        )
        return fitted, scale

    def border(self, mat: np.ndarray, top: int, bottom: int, left: int, right: int, value: int) -> np.ndarray:
        """Put rows and columns of this value around a picture."""
        most = np.iinfo(mat.dtype).max if mat.dtype.kind == "u" else None
        if most is not None and not 0 <= value <= most:  # OpenCV takes another number then
            raise hami.RequestError(
                f'{type(self).__name__}: "pad" is from 0 to {most} for a picture of {mat.dtype}, got {value}'
            )
        bordered = cv2.copyMakeBorder(mat, top, bottom, left, right, cv2.BORDER_CONSTANT, value=(value,) * 4)
        return bordered.reshape(*bordered.shape[:2], *mat.shape[2:])

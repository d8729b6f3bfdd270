"""ResizeBackend: the base class of the resizing backends, with their common parameters."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import cv2
import hami
import numpy as np
from numpy.typing import NDArray

from hami_image._image_backend import ImageBackend

INTERPOLATIONS = {
    "nearest": cv2.INTER_NEAREST,
    "linear": cv2.INTER_LINEAR,
    "cubic": cv2.INTER_CUBIC,
    "area": cv2.INTER_AREA,
    "lanczos": cv2.INTER_LANCZOS4,
}

_MAX_SIDE = 32767  # pixels: the largest coordinate of OpenCV's fixed-point resize


class ResizeBackend(ImageBackend):
    """Declares `width`, `height` and `interpolation`, and resizes and pads images for its subclasses."""

    width: Annotated[int, "width of the result in pixels"]
    height: Annotated[int, "height of the result in pixels"]
    interpolation: Annotated[Literal["nearest", "linear", "cubic", "area", "lanczos"], "interpolation method"] = (
        "linear"
    )

    def init(self, options: Any) -> None:
        for name in ("width", "height"):
            value = getattr(self, name)
            if not 1 <= value <= _MAX_SIDE:
                raise hami.ConfigError(f'{type(self).__name__}: "{name}" must be from 1 to {_MAX_SIDE}, got {value}')

    def resize(self, image: NDArray[Any], width: int, height: int) -> NDArray[Any]:
        """Resize to exactly `width` x `height`."""
        if image.shape[:2] == (height, width):
            return image
        resized = cv2.resize(image, (width, height), interpolation=INTERPOLATIONS[self.interpolation])
        return np.reshape(resized, (height, width, *image.shape[2:]))  # OpenCV drops a channel axis of length 1

    def resize_to_fit(self, image: NDArray[Any]) -> tuple[NDArray[Any], float]:
        """Resize to the largest size with the same aspect ratio that fits. Returns the image and the scale."""
        height, width = image.shape[:2]
        scale = min(self.width / width, self.height / height)
        fitted = self.resize(
            image,
            min(self.width, max(1, round(width * scale))),
            min(self.height, max(1, round(height * scale))),
        )
        return fitted, scale

    def add_border(self, image: NDArray[Any], top: int, bottom: int, left: int, right: int, value: int) -> NDArray[Any]:
        """Add this many rows and columns with the value `value` around an image."""
        limit = np.iinfo(image.dtype).max if image.dtype.kind == "u" else None
        if limit is not None and not 0 <= value <= limit:  # OpenCV would silently use another value
            raise hami.RequestError(
                f'{type(self).__name__}: "pad" must be from 0 to {limit} for an image of {image.dtype}, got {value}'
            )
        bordered = cv2.copyMakeBorder(image, top, bottom, left, right, cv2.BORDER_CONSTANT, value=(value,) * 4)
        return np.reshape(bordered, (*bordered.shape[:2], *image.shape[2:]))

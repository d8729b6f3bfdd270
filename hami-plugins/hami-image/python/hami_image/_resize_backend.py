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

    width: Annotated[int, hami.types.Alias("resize_w"), "width of the result in pixels"]
    height: Annotated[int, hami.types.Alias("resize_h"), "height of the result in pixels"]
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


class PaddedResizeBackend(ResizeBackend):
    """Declares `pad`, the border of an image that keeps its aspect ratio."""

    pad: Annotated[
        str, hami.types.Alias("pad_val"), "value of the border: 114 for all channels, or 0,0,255 for each"
    ] = "0"

    def init(self, options: Any) -> None:
        super().init(options)
        try:
            self._border = tuple(int(value) for value in self.pad.split(","))
        except ValueError:
            raise hami.ConfigError(
                f'{type(self).__name__}: "pad" must be an int, or an int for each channel as in 0,0,255, '
                f'got "{self.pad}"'
            ) from None

    def add_border(self, image: NDArray[Any], top: int, bottom: int, left: int, right: int) -> NDArray[Any]:
        """Add this many rows and columns with the values of `pad` around an image."""
        owner = type(self).__name__
        channels = image.shape[2] if image.ndim == 3 else 1
        if len(self._border) not in (1, channels):
            raise hami.RequestError(
                f'{owner}: "pad" has {len(self._border)} values, but the image has {channels} channels; '
                "give one value, or one for each channel"
            )
        limit = np.iinfo(image.dtype).max if image.dtype.kind == "u" else None
        for value in self._border:
            if limit is not None and not 0 <= value <= limit:  # OpenCV would silently use another value
                raise hami.RequestError(
                    f'{owner}: "pad" must be from 0 to {limit} for an image of {image.dtype}, got {value}'
                )
        border = self._border * 4 if len(self._border) == 1 else self._border
        bordered = cv2.copyMakeBorder(image, top, bottom, left, right, cv2.BORDER_CONSTANT, value=border)
        return np.reshape(bordered, (*bordered.shape[:2], *image.shape[2:]))

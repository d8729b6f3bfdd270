"""ResizeMat: resizes an image to an exact size and ignores its aspect ratio."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from hami_image._inputs import image_of
from hami_image._resize_backend import ResizeBackend


class ResizeMat(ResizeBackend):
    """Resize an image to exactly `width` x `height` without keeping its aspect ratio.

    data: image H x W or H x W x C; uint8, uint16 or float32
    result: image height x width or height x width x C, same dtype
    """

    def apply(self, item: Any) -> NDArray[Any]:
        return self.resize(image_of(item, "ResizeMat"), self.width, self.height)

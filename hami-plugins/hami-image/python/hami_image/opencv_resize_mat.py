"""OpenCvResizeMat: the part of ResizeMat that OpenCV does."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from hami_image._inputs import image_of
from hami_image._resize_backend import ResizeBackend


class OpenCvResizeMat(ResizeBackend):
    """Part of each `ResizeMat`: resizes with OpenCV what is not resized together with a `Mat2Tensor`.

    data: image H x W or H x W x C; uint8, uint16 or float32
    result: image height x width or height x width x C, same dtype
    """

    def apply(self, item: Any) -> NDArray[Any]:
        return self.resize(image_of(item, "ResizeMat"), self.width, self.height)

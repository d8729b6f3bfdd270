"""TopLeftResizeMat: resizes an image to an exact size, keeps its aspect ratio and places it in the top left corner."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from hami_image._inputs import image_of
from hami_image._resize_backend import PaddedResizeBackend


class TopLeftResizeMat(PaddedResizeBackend):
    """Resize an image to fit into `width` x `height`, keep its aspect ratio and fill right and bottom with `pad`.

    data: image H x W or H x W x C; uint8, uint16 or float32
    result: image height x width or height x width x C, same dtype
    scale: written to the request, the size of the resized image divided by the size of the original

    The point (x, y) of the result is (x / scale, y / scale) in the original image. A side that would be shorter than
    one pixel becomes one pixel, so clip mapped coordinates to the original image.
    """

    def apply(self, item: Any) -> NDArray[Any]:
        fitted, scale = self.resize_to_fit(image_of(item, "TopLeftResizeMat"))
        item["scale"] = scale
        bottom, right = self.height - fitted.shape[0], self.width - fitted.shape[1]
        return self.add_border(fitted, 0, bottom, 0, right)

"""LetterBoxMat: resizes an image to an exact size, keeps its aspect ratio and centres it."""

from __future__ import annotations

from typing import Annotated, Any

import hami
from numpy.typing import NDArray

from hami_image._inputs import image_of
from hami_image._resize_backend import PaddedResizeBackend


class LetterBoxMat(PaddedResizeBackend):
    """Resize an image to fit into `width` x `height`, keep its aspect ratio, centre it and fill the rest with `pad`.

    data: image H x W or H x W x C; uint8, uint16 or float32
    result: image height x width or height x width x C, same dtype
    letter_box: written to the request, {"scale", "left", "top", "image_width", "image_height"}; the last four in pixels

    The point (x, y) of the result is ((x - left) / scale, (y - top) / scale) in the original image. A side that would
    be shorter than one pixel becomes one pixel, so clip mapped coordinates to the original image.
    """

    pad: Annotated[
        str, hami.types.Alias("pad_val"), "value of the border: 114 for all channels, or 0,0,255 for each"
    ] = "114"

    def apply(self, item: Any) -> NDArray[Any]:
        image = image_of(item, "LetterBoxMat")
        fitted, scale = self.resize_to_fit(image)
        spare_rows, spare_columns = self.height - fitted.shape[0], self.width - fitted.shape[1]
        top, left = spare_rows // 2, spare_columns // 2
        image_height, image_width = image.shape[:2]
        item["letter_box"] = {
            "scale": scale,
            "left": left,
            "top": top,
            "image_width": image_width,
            "image_height": image_height,
        }
        return self.add_border(fitted, top, spare_rows - top, left, spare_columns - left)

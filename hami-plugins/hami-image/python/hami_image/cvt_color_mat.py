"""CvtColorMat: converts an image between RGB, BGR and gray."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import cv2
import hami
from numpy.typing import NDArray

from hami_image._image_backend import ImageBackend
from hami_image._inputs import image_of

_FROM_GRAY = {"bgr": cv2.COLOR_GRAY2BGR, "rgb": cv2.COLOR_GRAY2RGB}
_FROM_COLOR = {  # (number of channels, source, color)
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


class CvtColorMat(ImageBackend):
    """Convert an image to the channel order `color`, or to gray.

    data: image H x W or H x W x 1 (gray), H x W x 3, or H x W x 4 (with alpha); uint8, uint16 or float32
    color: key of the request, the channel order of a color image, which DecodeMat sets; set to that of the result
    result: image H x W x 3, or H x W if `color` is gray; same dtype, without alpha

    The number of channels does not tell their order: `source` is that of color images without the key `color`.
    """

    color: Annotated[Literal["rgb", "bgr", "gray"], "channel order of the result"]
    source: Annotated[Literal["bgr", "rgb"], "channel order of color images without a `color` key"] = "bgr"

    def apply(self, item: Any) -> NDArray[Any]:
        image = image_of(item, "CvtColorMat")
        source = item.get("color", self.source)
        if source not in ("rgb", "bgr", "gray"):
            raise hami.RequestError(f'CvtColorMat: the key "color" must be rgb, bgr or gray, got {source!r}')
        result = self._converted(image, self.source if source == "gray" else source)
        item["color"] = self.color
        return result

    def _converted(self, image: NDArray[Any], source: str) -> NDArray[Any]:
        channels = 1 if image.ndim == 2 else image.shape[2]
        if channels == 1:
            if self.color == "gray":
                return image.reshape(image.shape[:2])
            return cv2.cvtColor(image, _FROM_GRAY[self.color])
        if channels == 3 and self.color == source:
            return image
        return cv2.cvtColor(image, _FROM_COLOR[channels, source, self.color])

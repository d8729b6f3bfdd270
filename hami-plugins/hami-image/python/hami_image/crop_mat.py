"""CropMat: cuts one rectangle out of an image."""

from __future__ import annotations

from typing import Annotated, Any

import hami
from numpy.typing import NDArray

from hami_image._image_backend import ImageBackend
from hami_image._inputs import finite_floats, image_of


class CropMat(ImageBackend):
    """Cut the rectangle `box` out of an image.

    data: image H x W or H x W x C; uint8, uint16 or float32
    box: key of the request, [x1, y1, x2, y2] in pixels; column x2 and row y2 are outside. Default: the parameter
    result: image of the same dtype, a view of `data` (not a copy)

    The box is clipped to the image and rounded to whole pixels. A box that does not overlap the image is an error.
    """

    box: Annotated[list[Any], "box of requests without the key `box`: [x1, y1, x2, y2] in pixels"] = []  # noqa: RUF012

    def init(self, options: Any) -> None:
        self._default_box = _read_box(self.box, hami.ConfigError) if self.box else None

    def apply(self, item: Any) -> NDArray[Any]:
        image = image_of(item, "CropMat")
        box = self._box_of(item)
        height, width = image.shape[:2]
        x1, x2 = (min(max(x, 0), width) for x in (box[0], box[2]))
        y1, y2 = (min(max(y, 0), height) for y in (box[1], box[3]))
        if x1 >= x2 or y1 >= y2:
            raise hami.RequestError(
                f"CropMat: the box {box} does not overlap the image, which is {width} x {height}; "
                "a box is [x1, y1, x2, y2] with x1 < x2 and y1 < y2"
            )
        part = image[round(y1) : round(y2), round(x1) : round(x2)]
        if not part.size:
            raise hami.RequestError(f"CropMat: the box {box} is empty after rounding to whole pixels; enlarge it")
        return part

    def _box_of(self, item: Any) -> list[float]:
        if "box" in item:
            return _read_box(item["box"], hami.RequestError)
        if self._default_box is None:
            raise hami.RequestError(
                'CropMat: no box was given; give [x1, y1, x2, y2] as the key "box" of the request or as a parameter'
            )
        return self._default_box


def _read_box(value: Any, error_type: type[hami.Error]) -> list[float]:
    box = finite_floats(value)
    if box is None or len(box) != 4:
        raise error_type(f'CropMat: "box" must be [x1, y1, x2, y2], four finite numbers in pixels, got {value!r}')
    return box

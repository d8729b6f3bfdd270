"""CropTensor: one rectangle of a picture."""

from __future__ import annotations

import math
from typing import Annotated, Any

import hami

from hami_torch._image import ImageBackend
from hami_torch._streams import arrive
from hami_torch._tensor import without_frames


class CropTensor(ImageBackend):
    """Cut the rectangle `box` = [x1, y1, x2, y2] out of a picture; x2 and y2 are the first column and row outside.

    The box comes from the request's key `box`, else from the parameter. It is rounded to pixels and cut at the
    picture's edges; a box that lies outside altogether is an error. The result is a view, not a copy.
    """

    box: Annotated[list, "the box of requests that bring none: x1, y1, x2, y2 in pixels"] = []  # noqa: RUF012

    def init(self, options: Any) -> None:
        super().init(options)
        self._box = _numbers(self.box) if self.box else None
        if self.box and self._box is None:
            raise hami.ConfigError(f'CropTensor: "box" is x1, y1, x2, y2, got {self.box!r}')

    def run(self, batch: list[Any]) -> None:
        for item, image in self.read(batch, self.image_of):
            try:
                x1, y1, x2, y2 = self._inside(self._box_of(item), *image.shape[-2:])
            except hami.Error as error:
                item.fail(without_frames(error))
            else:
                self.give(item, image[..., y1:y2, x1:x2])

    def _box_of(self, item: Any) -> list[float]:
        if "box" not in item:
            if self._box is None:
                raise hami.RequestError(
                    'CropTensor: the request has no "box" and the backend no default; '
                    "give [x1, y1, x2, y2] in one of them"
                )
            return self._box
        arrive(item["box"], self.torch_device)
        box = _numbers(item["box"])
        if box is None:
            raise hami.RequestError(f'CropTensor: "box" is [x1, y1, x2, y2] in pixels, got {item["box"]!r}')
        return box

    def _inside(self, box: list[float], height: int, width: int) -> tuple[int, int, int, int]:
        x1, x2 = (min(max(round(x), 0), width) for x in (box[0], box[2]))
        y1, y2 = (min(max(round(y), 0), height) for y in (box[1], box[3]))
        if x1 >= x2 or y1 >= y2:
            raise hami.RequestError(
                f"CropTensor: nothing of the box {box} lies inside the picture, which is {width} x {height}; "
                "a box is [x1, y1, x2, y2] with x1 < x2 and y1 < y2"
            )
        return x1, y1, x2, y2


def _numbers(given: Any) -> list[float] | None:
    try:
        box = [float(value) for value in given]
    except (TypeError, ValueError):
        return None
    return box if len(box) == 4 and all(map(math.isfinite, box)) else None

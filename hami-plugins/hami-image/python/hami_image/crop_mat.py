"""CropMat: one rectangle of a picture."""

from __future__ import annotations

from typing import Annotated, Any

import hami
import numpy as np

from hami_image._mat import OneByOne, finite_floats, mat_of


class CropMat(OneByOne):
    """Cut the rectangle `box` = [x1, y1, x2, y2] out of a picture; x2 and y2 are the first column and row outside.

    The box comes from the request's key `box`, else from the parameter. It is rounded to pixels and cut at the
    picture's edges; a box that lies outside altogether is an error. The result is a view, not a copy.
    """

    box: Annotated[list, "the box of requests that bring none: x1, y1, x2, y2 in pixels"] = []  # noqa: RUF012

    def init(self, options: Any) -> None:
        self._box = finite_floats(self.box)
        if self.box and (self._box is None or len(self._box) != 4):
            raise hami.ConfigError(f'CropMat: "box" is x1, y1, x2, y2 in pixels, got {self.box!r}')

    def apply(self, item: Any) -> np.ndarray:
        mat = mat_of(item, "CropMat")
        box = self._box_of(item)
        height, width = mat.shape[:2]
        x1, x2 = (min(max(x, 0), width) for x in (box[0], box[2]))
        y1, y2 = (min(max(y, 0), height) for y in (box[1], box[3]))
        if x1 >= x2 or y1 >= y2:
            raise hami.RequestError(
                f"CropMat: nothing of the box {box} lies inside the picture, which is {width} x {height}; "
                "a box is [x1, y1, x2, y2] with x1 < x2 and y1 < y2"
            )
        part = mat[round(y1) : round(y2), round(x1) : round(x2)]
        if not part.size:
            raise hami.RequestError(
                f"CropMat: the box {box} holds no pixel once it is rounded to whole ones; give a larger one"
            )
        return part

    def _box_of(self, item: Any) -> list[float]:
        if "box" not in item:
            if not self._box:
                raise hami.RequestError(
                    'CropMat: the request has no "box" and the backend no default; give [x1, y1, x2, y2] in one of them'
                )
            return self._box
        given = item["box"]
        box = finite_floats(given)
        if box is None or len(box) != 4:
            raise hami.RequestError(f'CropMat: "box" is [x1, y1, x2, y2] in pixels, got {given!r}')
        return box

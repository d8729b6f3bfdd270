"""CropTensor: cut a rectangle out of an image."""

from __future__ import annotations

import math
from typing import Annotated, Any

import hami
from hami.batching import fail_request

from hami_torch._image import ImageBackend
from hami_torch._streams import wait_for_inputs
from hami_torch._types import Batch, Request


class CropTensor(ImageBackend):
    """Cut the rectangle `box` out of an image, C x H x W or N x C x H x W; the result is a view, not a copy.

    A box is [x1, y1, x2, y2] in pixels; x2 and y2 are the first column and row outside it. It is the request's key
    `box`, or the parameter if the request has none. It is rounded to whole pixels and clipped to the image. A box
    that does not overlap the image is an error.
    """

    box: Annotated[list[Any], "default box, [x1, y1, x2, y2] in pixels"] = []  # noqa: RUF012

    def init(self, options: Any) -> None:
        super().init(options)
        self._box = _numbers(self.box) if self.box else None
        if self.box and self._box is None:
            raise hami.ConfigError(f'CropTensor: "box" must be [x1, y1, x2, y2] in pixels, got {self.box!r}')

    def run(self, batch: Batch) -> None:
        for item, image in self.read(batch, self.image_of):
            height, width = image.shape[-2:]
            try:
                x1, y1, x2, y2 = _clipped(self._box_of(item), height, width)
            except hami.Error as error:
                fail_request(item, error)
            else:
                self.give(item, image[..., y1:y2, x1:x2])

    def _box_of(self, item: Request) -> list[float]:
        if "box" not in item:
            if self._box is None:
                raise hami.RequestError(
                    'CropTensor: the request has no key "box" and the parameter "box" is not set; '
                    "set one of them to [x1, y1, x2, y2]"
                )
            return self._box
        wait_for_inputs(item["box"], self.torch_device)
        box = _numbers(item["box"])
        if box is None:
            raise hami.RequestError(f'CropTensor: "box" must be [x1, y1, x2, y2] in pixels, got {item["box"]!r}')
        return box


def _clipped(box: list[float], height: int, width: int) -> tuple[int, int, int, int]:
    """Return the box in whole pixels inside the image."""
    x1, x2 = (min(max(round(x), 0), width) for x in (box[0], box[2]))
    y1, y2 = (min(max(round(y), 0), height) for y in (box[1], box[3]))
    if x1 >= x2 or y1 >= y2:
        raise hami.RequestError(
            f"CropTensor: the box {box} does not overlap the image, which is {width} x {height}; "
            "a box is [x1, y1, x2, y2] with x1 < x2 and y1 < y2"
        )
    return x1, y1, x2, y2


def _numbers(given: Any) -> list[float] | None:
    """Return four finite numbers, None if `given` is anything else."""
    try:
        box = [float(value) for value in given]
    except (TypeError, ValueError):
        return None
    return box if len(box) == 4 and all(map(math.isfinite, box)) else None

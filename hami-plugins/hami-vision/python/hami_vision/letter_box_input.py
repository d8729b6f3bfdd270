"""LetterBoxInput: makes the input of a detector of a picture, and its inverse for boxes and points."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import cv2
import hami
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class LetterBox:
    """Where a picture lies in the input of a model: the point (x, y) is at (x * scale + left, y * scale + top)."""

    scale: float
    left: int
    top: int
    width: int  # of the input
    height: int
    image_width: int
    image_height: int

    @classmethod
    def fit(cls, image_width: int, image_height: int, width: int, height: int) -> LetterBox:
        """Centre a picture in the input, as large as it fits."""
        scale = min(width / image_width, height / image_height)
        inner_width, inner_height = _fitted(image_width, scale, width), _fitted(image_height, scale, height)
        left, top = (width - inner_width) // 2, (height - inner_height) // 2
        return cls(scale, left, top, width, height, image_width, image_height)

    @property
    def inner(self) -> tuple[int, int]:
        """The width and height of the picture in the input."""
        return _fitted(self.image_width, self.scale, self.width), _fitted(self.image_height, self.scale, self.height)

    def to_image(self, points: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return points (…, 2) of the input as points of the picture, clipped to it."""
        limits = np.array([self.image_width, self.image_height], np.float32)
        return np.clip(self.unclipped(points), 0, limits)

    def unclipped(self, points: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the same without the clip."""
        corner = np.array([self.left, self.top], np.float32)
        moved: NDArray[np.float32] = (points - corner) / np.float32(self.scale)
        return moved

    def meets(self, boxes: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Return which boxes (x1, y1, x2, y2) of the input have a part in the picture, and not all in the border."""
        corners = self.unclipped(boxes.reshape(-1, 2, 2))
        limits = np.array([self.image_width, self.image_height], np.float32)
        meeting = (corners[:, 0] < limits) & (corners[:, 1] > 0)
        return meeting[:, 0] & meeting[:, 1]


def _fitted(side: int, scale: float, limit: int) -> int:
    return min(limit, max(1, round(side * scale)))


class LetterBoxInput(hami.Backend):
    """Make the input of a detector: the picture letterboxed to the size that the engine of this instance takes.

    data: image H x W x 3, uint8, as DecodeMat returns; the key `color` says "bgr" (default) or "rgb"
    result: float32 1 x 3 x height x width, RGB, (value * scale - mean) / std
    image, letter_box: written to the request: the picture, and the LetterBox with which DecodeDetections maps back

    The resize is cv2.resize with INTER_LINEAR.
    """

    max = 1024
    thread = "concurrent"
    lightweight = True

    width: Annotated[int | None, "width of the input in pixels; default: what the engine takes"] = None
    height: Annotated[int | None, "height of the input in pixels; default: what the engine takes"] = None
    pad: Annotated[int, "value of the border, 0 to 255"] = 114
    scale: Annotated[float, "factor of the values 0 to 255"] = 1 / 255
    mean: Annotated[list[str], "numbers subtracted from each channel of the result, in its order; one: for all"] = ["0"]  # noqa: RUF012
    std: Annotated[list[str], "numbers that divide each channel, in its order; one: for all"] = ["1"]  # noqa: RUF012
    color: Annotated[Literal["rgb", "bgr"], "order of the channels in the result"] = "rgb"

    def init(self, options: Any) -> None:
        sizes = [self.height, self.width]
        announced = options.get("engine_inputs") or []
        if len(announced) > 1:
            names = ", ".join(entry["name"] for entry in announced)
            raise hami.ConfigError(f"LetterBoxInput makes one input, and the model takes {len(announced)}: {names}")
        shape = announced[0].get("shape") if announced else None
        if shape and len(shape) == 4:
            sizes = [given or (size if size > 0 else None) for given, size in zip(sizes, shape[2:], strict=True)]
        if not all(sizes):
            raise hami.ConfigError(
                "LetterBoxInput: the size of the input is not known, as the model takes any size or no engine follows; "
                "set width and height, such as 640"
            )
        self._height, self._width = (int(size) for size in sizes if size)
        if min(self._height, self._width) < 1:
            raise hami.ConfigError(f"LetterBoxInput: width and height must be at least 1, got {sizes[::-1]}")
        if not 0 <= self.pad <= 255:
            raise hami.ConfigError(f"LetterBoxInput: pad must be from 0 to 255, got {self.pad}")
        self._mean, self._std = _planes_of(self.mean, "mean"), _planes_of(self.std, "std")
        if (self._std == 0).any():
            raise hami.ConfigError("LetterBoxInput: std divides, so no number of it can be 0")
        self._normalizes = bool((self._mean != 0).any() or (self._std != 1).any())

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            try:
                image = _image_of(item)
                item["result"], item["letter_box"] = self._make(image, str(item.get("color", "bgr")))
                item["image"] = image
            except hami.Error as error:
                item.fail(error)

    def _make(self, image: NDArray[np.uint8], color: str) -> tuple[NDArray[np.float32], LetterBox]:
        box = LetterBox.fit(image.shape[1], image.shape[0], self._width, self._height)
        inner = image if box.inner == image.shape[1::-1] else cv2.resize(image, box.inner)
        canvas = np.full((self._height, self._width, 3), self.pad, np.uint8)
        canvas[box.top : box.top + box.inner[1], box.left : box.left + box.inner[0]] = inner
        ordered = canvas if color == self.color else canvas[:, :, ::-1]
        planes = np.empty((3, self._height, self._width), np.float32)  # in the order that engines take
        np.multiply(ordered.transpose(2, 0, 1), np.float32(self.scale), out=planes, dtype=np.float32)
        if self._normalizes:
            planes = (planes - self._mean) / self._std
        return planes[None], box


def _planes_of(texts: list[str], parameter: str) -> NDArray[np.float32]:
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 3) or not all(map(math.isfinite, numbers)):
        raise hami.ConfigError(f"LetterBoxInput: {parameter} has 1 or 3 numbers, got {', '.join(texts)}")
    return np.array(numbers, np.float32).reshape(-1, 1, 1)


def _image_of(item: Any) -> NDArray[np.uint8]:
    data = item.get("data", None)
    if not isinstance(data, np.ndarray) and hasattr(data, "__dlpack__"):
        data = hami.to_numpy(data)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 3 or data.shape[2] != 3:
        given = f"{data.dtype} {list(data.shape)}" if isinstance(data, np.ndarray) else type(data).__name__
        raise hami.DataTypeError(
            f'LetterBoxInput: "data" must be an image (uint8 array H x W x 3, as DecodeMat returns), got {given}'
        )
    if data.size == 0:
        raise hami.RequestError(f"LetterBoxInput: the image is empty, its shape is {list(data.shape)}")
    return data

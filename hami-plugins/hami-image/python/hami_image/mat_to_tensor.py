"""Mat2Tensor: converts an image from OpenCV's layout to the layout of neural networks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import hami
import numpy as np
from numpy.typing import NDArray

from hami_image._image_backend import ImageBackend
from hami_image._inputs import image_of

_DTYPES: dict[str, np.dtype[Any]] = {name: np.dtype(name) for name in ("float32", "float16", "uint8")}
_RANGES = {"uint8": (0, 255), "float16": (-65504, 65504)}  # finite values of the types that may be too small


class Mat2Tensor(ImageBackend):
    """Convert an image H x W x C to a contiguous tensor 1 x C x H x W without scaling its values.

    data: image H x W or H x W x C; uint8, uint16 or float32
    result: tensor 1 x C x H x W, C x H x W with `layout` = chw, or H x W x C with `layout` = hwc; gray has C = 1
    data_format: written to the request, the layout of the result

    An image with values that `dtype` cannot hold is an error. Conversion to uint8 drops fractions. NormalizeTensor
    scales and normalises.
    """

    layout: Annotated[
        Literal["nchw", "chw", "hwc"],
        hami.types.Alias("data_format"),
        "order of the axes; nchw has a batch axis of length 1",
    ] = "nchw"
    dtype: Annotated[Literal["float32", "float16", "uint8"], "dtype of the result"] = "float32"

    def apply(self, item: Any) -> NDArray[Any]:
        image = image_of(item, "Mat2Tensor")
        if image.ndim == 2:
            image = image[:, :, np.newaxis]
        dtype = _DTYPES[self.dtype]
        if not np.can_cast(image.dtype, dtype):
            self._check_range(image)
        item["data_format"] = self.layout
        if self.layout == "hwc":
            return np.array(image, dtype)
        # Copying one channel at a time is much faster than one transposed copy of all channels.
        tensor = np.empty((image.shape[2], *image.shape[:2]), dtype)
        for channel in range(image.shape[2]):
            tensor[channel] = image[:, :, channel]
        return tensor[np.newaxis] if self.layout == "nchw" else tensor

    def _check_range(self, image: NDArray[Any]) -> None:
        lowest, highest = _RANGES[self.dtype]
        low, high = image.min(), image.max()
        if not (lowest <= low and high <= highest):  # true for NaN too
            raise hami.RequestError(
                f'Mat2Tensor: "dtype" = {self.dtype} can hold values from {lowest} to {highest}, but the image of '
                f"{image.dtype} has values from {low} to {high}; scale the image first or use float32"
            )

"""PillowResizeMat: resizes an image with Pillow."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import hami
import numpy as np
from numpy.typing import NDArray

from hami_image._image_backend import ImageBackend
from hami_image._inputs import image_of

_MAX_SIDE = 32767  # pixels, as for ResizeMat


class PillowResizeMat(ImageBackend):
    """Resize an image to exactly `width` x `height` with the bits of Pillow, as torchvision does for a PIL image.

    data: image H x W or H x W x C, uint8
    result: image height x width or height x width x C, uint8

    Unlike OpenCV, Pillow averages all pixels of the source where it makes an image smaller. Needs `hami-image[pillow]`.
    """

    width: Annotated[int, hami.types.Alias("resize_w"), "width of the result in pixels"]
    height: Annotated[int, hami.types.Alias("resize_h"), "height of the result in pixels"]
    interpolation: Annotated[
        Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"], "filter of Pillow"
    ] = "bilinear"

    def init(self, options: Any) -> None:
        try:
            from PIL import Image
        except ImportError as error:
            raise hami.PluginError('PillowResizeMat needs Pillow: pip install "hami-image[pillow]"') from error
        for name in ("width", "height"):
            value = getattr(self, name)
            if not 1 <= value <= _MAX_SIDE:
                raise hami.ConfigError(f'PillowResizeMat: "{name}" must be from 1 to {_MAX_SIDE}, got {value}')
        self._read = Image.fromarray
        self._filter = Image.Resampling[self.interpolation.upper()]

    def apply(self, item: Any) -> NDArray[Any]:
        image = image_of(item, "PillowResizeMat")
        if image.dtype != np.uint8:
            raise hami.DataTypeError(f"PillowResizeMat: the image must be uint8, got {image.dtype}; write ResizeMat")
        is_gray_3d = image.ndim == 3 and image.shape[2] == 1  # Pillow has no such mode
        picture = self._read(image[..., 0] if is_gray_3d else image)
        resized = np.array(picture.resize((self.width, self.height), self._filter))
        return resized[..., None] if is_gray_3d else resized
